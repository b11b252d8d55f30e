"use strict";(()=>{function d(n,t={},...e){let s=document.createElement(n);for(let[o,i]of Object.entries(t))i==null||i===!1||(o==="class"?s.
className=i:o.startsWith("on")?s.addEventListener(o.slice(2),i):o.startsWith("--")?s.style.setProperty(o,i):s.setAttribute(
o,i===!0?"":i));return s.append(...e.flat(1/0).filter(o=>o!=null)),s}var Y=n=>n?d("small",{},n):null,ot=n=>d("p",{class:"\
none"},n);function ct(n,t){return t.length?d("ul",{class:n},t.map(e=>d("li",{},e))):null}function ft(n){return d("dl",{class:"\
facts"},n.flatMap(([t,e])=>[d("dt",{},t),d("dd",{},e)]))}function Ht(n,t=()=>{}){let e=s=>{removeEventListener("pointerm\
ove",n),removeEventListener("pointerup",e),t(s)};addEventListener("pointermove",n),addEventListener("pointerup",e)}function gt(n,t,e,s){
let o={Enter:n.shiftKey?-1:1,ArrowDown:1,ArrowUp:-1}[n.key];!o||!e||(n.preventDefault(),s(t<0&&o<0?e-1:(t+o+e)%e))}async function Ut(n){
try{return await navigator.clipboard.writeText(n),!0}catch{let t=d("textarea",{"aria-hidden":"true",class:"away"});t.value=
n,document.body.append(t),t.select();let e=document.execCommand("copy");return t.remove(),e}}function we(n){let{top:t,bottom:e}=n.
getBoundingClientRect();(t<60||e>innerHeight)&&n.scrollIntoView({behavior:"instant",block:"start"})}var qe={light:["#2f52bd","#dfa01e","#cc3a32","#40b8ae","#388f45","#dc6aa5","#7a3fc4","#9cc6fa","#845c3e","#8d96a3","#ccd\
5e6"],dark:["#5579ee","#f7cc62","#ee5f54","#6fdccf","#5ab566","#e276b1","#8650dc","#a9ccff","#a5774f","#a0abb8","#47546e"]},
ke=[0,0,1,1,0,2,2,2,3,3,0],Kt=6,Ss={1:[[0,4,2,2],[2,2,2,2],[4,0,2,2]],2:[[1,1,2,2],[4,4,2,2]],3:[[0,2,6,2]]},ht=["circle",
"triangle","diamond","rect"],Ve=["solid","dashed","dotted",[9,3,2,3]],y={choice:"auto",system:globalThis.matchMedia?.("(\
prefers-color-scheme: dark)"),paper:!1,get name(){return this.paper?"light":this.choice==="auto"?this.system.matches?"da\
rk":"light":this.choice},color(n){let t=qe[this.name];return typeof n=="string"?this.value(n):t[n%t.length]},value(n){return getComputedStyle(
document.documentElement).getPropertyValue(`--${n}`).trim()},apply(){document.documentElement.dataset.theme=this.name,Os()}},
Q=n=>typeof n=="string"?0:ke[n%ke.length],At=["#10151c","#ffffff"];function it(n){let t=e=>{let[s,o]=[Ke(e),Ke(n)].sort(
(i,a)=>i-a);return(o+.05)/(s+.05)};return t(At[0])>=t(At[1])?At[0]:At[1]}function Ke(n){let[t,e,s]=[1,3,5].map(o=>{let i=parseInt(
n.slice(o,o+2),16)/255;return i<=.03928?i/12.92:((i+.055)/1.055)**2.4});return .2126*t+.7152*e+.0722*s}var Xe=n=>it(n)===
At[0]?"rgb(255 255 255 / 45%)":"rgb(0 0 0 / 28%)",ve=new Map;function Ye(n,t){let e=`${n} ${t}`;if(!ve.has(e)){let s=d("\
canvas",{width:Kt,height:Kt}),o=s.getContext("2d");o.fillStyle=n,o.fillRect(0,0,Kt,Kt),o.fillStyle=Xe(n);for(let i of Ss[t])
o.fillRect(...i);ve.set(e,s)}return ve.get(e)}function K(n){let t=y.color(n),e=Q(n);return e?{image:Ye(t,e),repeat:"repe\
at"}:t}function qt(n,t){let e=y.color(t),s=Q(t);return s?n.createPattern(Ye(e,s),"repeat"):e}var Ms={1:n=>`repeating-lin\
ear-gradient(135deg, transparent 0 2px, ${n} 2px 4px)`,2:n=>`radial-gradient(${n} 1.2px, transparent 1.4px) 0 0 / 4px 4p\
x`,3:n=>`repeating-linear-gradient(transparent 0 2px, ${n} 2px 4px)`},Vt=n=>typeof n=="string"?`var(--${n})`:`var(--patt\
ern-${n}), var(--color-${n})`;function Os(){qe[y.name].forEach((n,t)=>{let e=Ms[ke[t]]?.(Xe(n))??"none";document.documentElement.
style.setProperty(`--color-${t}`,n),document.documentElement.style.setProperty(`--pattern-${t}`,e)})}var Xt=(n,t)=>t.map((e,s)=>[e+n,1e3**s]),yt={ns:[["ns",1],["µs",1e3],["ms",1e6],["s",1e9]],bytes:Xt("B",["","k","M","G",
"T"]),flop:Xt("FLOP",["","k","M","G","T","P"]),"flop/s":Xt("FLOP/s",["","k","M","G","T","P"]),"bytes/s":Xt("B/s",["","k",
"M","G","T"])};function Yt(n,t){let e=yt[n],s=e[0];for(let o of e)Math.abs(t)>=o[1]&&(s=o);return s}var _=new Intl.NumberFormat(
"en-US",{maximumFractionDigits:0});function z(n){if(n===0)return"0";let t=Math.abs(n);if(t>=1e3)return _.format(n);if(t<
.001)return n.toExponential(1);let e=Math.max(0,2-Math.floor(Math.log10(t)));return n.toFixed(Math.min(e,6))}function Et(n){
let t=100*n;return t===0||t===100?String(t):t<.1&&t>0?"< 0.1":t.toFixed(1)}function m(n,t){if(n==null||Number.isNaN(n))return"\
–";if(t==="share")return`${Et(n)} %`;if(t==="count")return _.format(n);if(!yt[t])return t?`${z(n)} ${t}`:z(n);let[e,s]=Yt(
t,n);return`${z(n/s)} ${e}`}function rt(n,t){return m(n,t).replace(/(\.\d*?)0+(?= |$)/,"$1").replace(/\.(?= |$)/,"")}function Je(n){
let t=Math.abs(n);return t>=1e3?_.format(n):n.toFixed(t>=100?1:t>=10?2:3)}function Ze(n,t){if(!yt[n.unit])return[n.unit===
"share"?"%":["text","count",void 0].includes(n.unit)?"":n.unit,1];let e=t.map(s=>Math.abs(s[n.like??n.key]??0)).filter(s=>s>
0);return e.sort((s,o)=>s-o),Yt(n.unit,e.length?Math.sqrt(e[e.length>>1]*e[e.length-1]):0)}function Qe(n,t){let e=t==="F\
LOP/s"?"flop/s":t;return Number.isInteger(n)&&!yt[e]&&e!=="share"?`${_.format(n)} ${t}`:m(n,e)}var Lt=n=>`${(n/1e6).toFixed(
6)} ms`;function Jt(n){let t=Math.round(Math.log10(n));return t>=4||t<=-3?`10${[...String(t)].map(e=>e==="-"?"⁻":"⁰¹²³\
⁴⁵⁶⁷⁸⁹"[e]).join("")}`:String(n)}var tn=n=>`${n<0?"−":"+"}${(100*Math.abs(n)).toFixed(2)} %`;var J=new Set;function Zt(n){J.add({draw:()=>n.draw(),instance:{dispose(){},resize:()=>n.draw()}})}function W(n,t,e,s=()=>{}){
let o={node:n,options:e,ready:s,instance:null};return n.style.height=`${t}px`,n.classList.add("chart"),J.add(o),o.draw=()=>{
o.instance&&o.instance.dispose(),o.instance=echarts.init(n,null,{renderer:"canvas"});let i=n.hasAttribute("aria-label");
o.instance.setOption({...Cs(),aria:{enabled:!i},...e()}),s(o.instance)},o}function Cs(){return{animation:!1,textStyle:{fontFamily:y.
value("sans"),color:y.value("text")},backgroundColor:"transparent",tooltip:j()}}function j(n,t={}){return{confine:!0,backgroundColor:y.
value("card"),borderColor:y.value("line"),borderWidth:1,padding:[7,10],textStyle:{color:y.value("text"),fontSize:12.5},transitionDuration:0,
extraCssText:"box-shadow:0 6px 20px rgb(0 0 0 / 18%);border-radius:8px;",formatter:n,...t}}function L({unit:n,axisLabel:t,
...e}={}){let s={lineStyle:{color:y.value("line")}},o={color:y.value("muted"),fontSize:12};return{axisLine:s,axisTick:{show:!1},
splitLine:s,minorSplitLine:{show:!1},axisLabel:{...o,formatter:n===void 0?void 0:a=>rt(a,n),...t},nameTextStyle:o,...e}}
function R(n,t){return d("div",{class:"tip"},d("b",{},n),t.filter(e=>e[1]!==null&&e[1]!==void 0).map(([e,s])=>d("div",{},
d("span",{},e),d("span",{},s))))}function Tt(n){let t=d("span",{class:"swatch"});return t.style.background=Vt(n),t}function F(n,{
side:t=null,more:e=null}={}){let s=n.map(o=>d("span",{},Tt(o.color),o.name));return n.length?d("div",{class:"legend"},t?
d("b",{},t):null,s,e):null}var Qt=new Map;function en(n){Qt.clear();for(let[t,e]of Object.entries(n))Qt.set(t,e),t.length>400&&Qt.set(`${t.slice(0,
399)}…`,e)}function G(n,t=60){return n=Z(n),n.length<=t?n:`${n.slice(0,Math.ceil(t*.7))}…${n.slice(n.length-Math.floor(
t*.3)+1)}`}function Z(n){return Qt.get(n)??n.replace(/^(?:void |nn\.Module: )/,"")}var te=n=>{let t=String(n??"");return t.
length>400?`${t.slice(0,399)}…`:t},Pt=n=>n.replace(/^nn\.Module: /,"").replace(/(?:_\d+| × \d+)$/,""),tt=n=>n.map(Pt).
join(" / ");function ee(n,t){let e=String(n??"");return e.toLowerCase().includes(t)||Z(e).toLowerCase().includes(t)}function nn(n){
let t=[];for(let e of n)t.length&&t[t.length-1][0]===e?t[t.length-1][1]+=1:t.push([e,1]);return t.map(([e,s])=>s>1?`${e}\
 ×${s}`:e).join(", ")}var A={report:null,timeline:null,cameFrom:null,draw:async()=>{}},T=n=>document.getElementById(n),bt=new Map,wt=new Set;var sn={Device:["breakdown","kernels","idle","launches"],Host:["operators","source","flame","overheads"],Job:["job","axi\
s","communication"],More:["memory","serving","tables"]};function on(){let n=({id:o,heading:i})=>d("a",{href:`#${o}`,"dat\
a-to":o,onclick:an},i),t=[...document.querySelectorAll("section")].map(o=>({id:o.id,heading:o.querySelector("h2").textContent})),
e=({id:o})=>Object.keys(sn).find(i=>sn[i].includes(o))??o,s=new Map;for(let o of t)s.set(e(o),[...s.get(e(o))??[],o]);T(
"nav").replaceChildren(...[...s].map(([o,i])=>i.length===1||A.report.difference?i.map(n):As(o,i.map(n))).flat())}function As(n,t){
let e=d("div",{class:"list"},t),s=d("details",{class:"group"},d("summary",{},n),e);return s.addEventListener("toggle",()=>{
if(!s.open)return;for(let a of T("nav").querySelectorAll("details[open]"))a!==s&&(a.open=!1);let{left:o,bottom:i}=s.getBoundingClientRect();
e.style.top=`${i}px`,e.style.left=`${Math.max(4,Math.min(o,innerWidth-e.offsetWidth-8))}px`}),s.addEventListener("keydow\
n",o=>{o.key==="Escape"&&(s.open=!1,s.firstChild.focus())}),s}function an(){for(let n of T("nav").querySelectorAll("deta\
ils[open]"))n.open=!1}function rn(){document.addEventListener("click",n=>{n.target.closest("nav details")||an()})}function ln(n){
for(let t of T("nav").querySelectorAll("a"))t.classList.toggle("here",t.dataset.to===n);for(let t of T("nav").querySelectorAll(
"details"))t.firstChild.classList.toggle("here",!!t.querySelector("a.here"))}async function cn(n){let t=Uint8Array.from(atob(n),s=>s.charCodeAt(0)),e=new Blob([t]).stream().pipeThrough(new DecompressionStream(
"deflate"));return new Uint8Array(await new Response(e).arrayBuffer())}async function vt(n){return JSON.parse(new TextDecoder().
decode(await cn(n)))}async function Nt(n,t,e){let s=await cn(n),o={},i=0;for(let{name:a,size:l,delta:r}of t){let h=Es(s.
subarray(i,i+=e*l),e,l);if(r)for(let u=1;u<e;u++)h[u]+=h[u-1];o[a]=h}return o}function Es(n,t,e){let s=new(e>4?Float64Array:
Int32Array)(t);for(let o=0;o<t;o++){let i=n[(e-1)*t+o]<<24>>24;for(let a=e-2;a>=0;a--)i=i*256+n[a*t+o];s[o]=i}return s}function x(n,t,...e){let s=n?d("h3",{},n,Y(t)):null;return d("div",{class:"card"},s,e)}function et(n,...t){let e=t.filter(
Boolean);return e.forEach((s,o)=>s.style.setProperty("--span",e.length>1?n[o]:12)),d("div",{class:"columns"},e)}function $(n,t,e,...s){
return d("section",{id:n,"aria-labelledby":`${n}-heading`},d("h2",{id:`${n}-heading`},t),e?d("p",{class:"lead"},e):null,
s)}function D(n,t,e){let[s,...o]=t.split(" ");return d("div",{class:"tile"},d("div",{class:"label"},n),d("div",{class:"v\
alue"},s,Y(o.join(" "))),d("div",{class:"note"},e??""))}function U(n,t){let e=n.left_out[t];return e?`${_.format(e)} fur\
ther rows are left out`:null}function ne(n,t){return t.filter((e,s)=>n.some(o=>o.kind===s))}function Ls(n){let e=n.split(/(?<=[;\t\r\n])/).map(s=>/^[\s\p{C}\p{Z}]*[=+\-@|＝＋－＠｜﹢﹣﹦﹫−]/u.test(s)?
`'${s}`:s).join("");return/^[\t\r\n]/.test(e)?`'${e}`:e}function hn(n,t){let e=o=>{let i=typeof o=="string"?Ls(o):String(
o??"");return/[",\r\n]/.test(i)?`"${i.replaceAll('"','""')}"`:i};return[n.map(o=>o.key),...t.map(o=>n.map(i=>o[i.key]))].
map(o=>`${o.map(e).join(",")}
`).join("")}var Ts=400;async function It(n,{gpu:t,device:e,stream:s,name:o,codes:i,op:a,has:l}){let{tiles:r,inspector:h,step:u,data:p}=n,
g=await h.details.texts(),f=i??(o===void 0?null:dn(g.names,o)),b=a?dn(g.names,a):null,M=[];for(let v=0;v<r.first.length;v++){
let k=p.lanes[r.tiles.lane[v]];if(t!==void 0&&k.gpu!==t||s!==void 0&&k.stream!==s||e!==void 0&&k.device!==e)continue;let C=r.
decoded.get(v)??await r.decode(v),P=l||u?(await h.details.tile(v)).columns:null;for(let I=0;I<C.count;I++)f&&!f.has(C.name[I])||
b&&!b.has(C.op[I])||u&&P.step[I]!==u.number||l&&!l(P,I,g,C.name[I])||M.push({number:C.first+I,ts:C.ts[I],dur:C.dur[I]})}
return M.sort((v,k)=>v.ts-k.ts||v.number-k.number)}var dn=(n,t)=>new Set(n.flatMap((e,s)=>e===t?[s]:[]));async function _e(n,t,e){
let s=t.slice().sort((a,l)=>l.dur-a.dur||a.ts-l.ts);if(!e)return s[0]?.number??null;let{details:o}=n.inspector,i=await o.
texts();for(let{number:a}of s.slice(0,Ts))if(await e(await o.of(a),i))return a;return null}function un(n){let t=null,e=n[0]?.
ts;for(let{ts:s,dur:o}of n)s-e>(t?t.to-t.from:0)&&(t={from:e,to:s}),e=Math.max(e,s+o);return t}var kt=class{constructor(t,e,s=-1){
this.timeline=t,this.numbers=e,this.at=s}get text(){return this.numbers.length?`${_.format(this.at+1)} of ${_.format(this.
numbers.length)}`:"none here"}async step(t){let e=this.numbers.length;e&&(this.at=this.at<0&&t<0?e-1:(this.at+t+e)%e,await this.
timeline.inspector.select(this.numbers[this.at],{reveal:!0}))}};async function _t(n,t=null){let{timeline:e}=A;if(!e)return;if(A.cameFrom=t,n.from!==void 0||!e.inspector)return xe(n);let s=[],
o=n.event;if(o===void 0){let i=await It(e,n);if(!i.length&&n.orElse?.from!==void 0)return xe(n.orElse);!i.length&&n.orElse&&
(i=await It(e,n.orElse));let a=n.gap?un(i):null;if(a)return xe(a);s=i.map(l=>l.number),o=await _e(e,i,n.fits)??await _e(
e,i)}if(o===null)return e.picked.replaceChildren("Not in the timeline: what this row is of has no event there.");(n.fits||
!s.length)&&(s=n.events??[o]),e.hits=new kt(e,s,s.indexOf(o)),we(e.node),await e.inspector.select(o,{reveal:!0}),e.canvas.
focus({preventScroll:!0}),e.node.dataset.jumped=o}function xe({from:n,to:t,name:e}){let{timeline:s}=A,{names:o,found:i}=s.
data,a=n===void 0?i.find(r=>o[r.name]===e):null;if(a&&([n,t]=[a.ts,a.ts+a.dur]),n===void 0)return;we(s.node);let l=Math.
max((t-n)*.15,20);s.show(n-l,t+l),s.inspector?.clear(),s.span?.set(n,t),s.canvas.focus({preventScroll:!0}),s.node.dataset.
jumped=`${n} ${t}`}function se(){let{cameFrom:n}=A;n?.isConnected&&(n.scrollIntoView({behavior:"instant",block:"center"}),
n.focus({preventScroll:!0}))}function mn(n,t){let e=A.timeline?.names;if(!e)return null;let s=n.find(({key:o,unit:i})=>i===
"text"&&e.has(te(t[o])));return s?{name:t[s.key]}:null}var Ps={kernel:["kernels",n=>t=>t.kernel===n],call:["operators",n=>t=>t.
op===n],operator:["operators",n=>t=>t.op===n],source:["sources",n=>t=>n.startsWith(`${t.place} `)||n===t.place],modules:[
"modules",n=>t=>t.path===tt(n)],module:["modules",n=>t=>t.path===tt(n.split(" / "))],phase:["phases",n=>t=>t.phase===n]};
function $e(n,t,e=null){let[s,o]=Ps[n]??[],i=s&&bt.get(s),a=i&&o(t);if(!i?.has(a))return null;let l=e??(Array.isArray(t)?
t.join(" / "):String(t)),r=`Its row in the table of ${s}`;return d("button",{type:"button",class:e?null:"to-row",title:r,
"data-row":n,onclick:()=>i.find(a)},l)}var Se=100,lt=(n,t)=>(e,s,o)=>({key:e,title:s,unit:n,code:t,...o}),c={text:lt("text"),code:lt("text",!0),count:lt("count"),
share:lt("share"),ns:lt("ns"),bytes:lt("bytes"),bandwidth:lt("bytes/s"),rate:lt("flop/s"),other:(n,t,e)=>({key:n,title:t,
unit:e})};function O(n,t,e,s,o){return s.length?x(n,t,H(e,s,o)):null}function H(n,t,{sort:e=null,filter:s=!0,name:o="",jump:i=null,
click:a=null}={}){n=n.filter(w=>w&&t.some(E=>(E[w.key]??"")!=="")).map(w=>({...w})),i??=w=>mn(n,w);let r={key:e===""?null:
e??n.find(w=>w.unit!=="text")?.key,text:"",most:Se,at:-1,found:t};r.down=n.find(w=>w.key===r.key)?.unit!=="text";let h=Object.
fromEntries(n.map(w=>[w.key,Ze(w,t)])),u=d("tr"),p=d("tbody"),g=d("span",{class:"said",role:"status"}),f=d("table",{"dat\
a-table":o,"aria-label":o.replaceAll("_"," ")},d("thead",{},u),p),b=d("input",{type:"search",placeholder:"Filter rows…",
"aria-label":`Filter ${o}`}),M=d("button",{type:"button"},"Show all"),v="The rows shown, with full names and whole numbe\
rs",k=d("button",{type:"button",class:"push",title:v},"Copy as CSV");b.addEventListener("input",()=>{r.text=b.value.toLowerCase(),
r.at=-1,V()}),b.addEventListener("keydown",w=>gt(w,r.at,r.found.length,C)),M.addEventListener("click",()=>{r.most=1/0,V()}),
k.addEventListener("click",async()=>{let w=_.format(r.found.length);g.textContent=await Ut(hn(n,r.found))?`${w} rows cop\
ied`:"copying is not allowed"});for(let w of n){let[E]=h[w.key],N=()=>{r.down=r.key===w.key?!r.down:w.unit!=="text",r.key=
w.key,r.at=-1,V()};w.heading=d("th",{class:w.unit==="text"?"text":null,scope:"col"},d("button",{type:"button",title:w.hint,
onclick:N},w.title,Y(E))),u.append(w.heading)}function C(w,{focus:E=!1}={}){r.at=w,r.at>=r.most&&(r.most=1/0),V();let N=p.
children[r.at];N.scrollIntoView({block:"nearest"}),E&&N.focus({preventScroll:!0}),g.textContent=`row ${_.format(r.at+1)}\
 of ${_.format(r.found.length)}`}function P(w){return t.some(w)?(b.value=r.text="",V(),f.scrollIntoView({behavior:"insta\
nt",block:"center"}),C(r.found.findIndex(w),{focus:!0}),p.children[r.at].scrollIntoView({behavior:"instant",block:"cente\
r"}),!0):!1}function I(w){let E=r.found[w],N=a?null:A.timeline&&i(E);a?a(E):N&&_t(N,p.children[w])}p.addEventListener("c\
lick",w=>{let E=w.target.closest("tr");E&&getSelection().isCollapsed&&I(E.sectionRowIndex)}),p.addEventListener("keydown",
w=>{let E=w.target.sectionRowIndex;if(E===void 0)return;if(w.key==="Enter")return I(E);let N=Math.min(r.found.length,r.most),
X={ArrowDown:E+1,ArrowUp:E-1,Home:0,End:N-1}[w.key];X!==void 0&&(w.preventDefault(),X>=0&&X<N&&C(X,{focus:!0}))});function V(){
let w=n.filter(N=>N.unit==="text");r.found=r.text?t.filter(N=>w.some(X=>ee(N[X.key],r.text))):t.slice(),r.key&&r.found.sort(
(N,X)=>Is(N[r.key],X[r.key])*(r.down?-1:1));for(let N of n)N.key===r.key?N.heading.setAttribute("aria-sort",r.down?"desc\
ending":"ascending"):N.heading.removeAttribute("aria-sort");let E=y.paper?1/0:r.most;p.replaceChildren(...r.found.slice(
0,E).map((N,X)=>{let xs=a||A.timeline&&i(N),$s={"aria-current":X===r.at?"true":null,class:xs?"go":null,tabindex:X===Math.
max(0,r.at)?0:-1};return d("tr",$s,n.map(Ue=>Ns(Ue,N,h[Ue.key])))})),M.hidden=r.found.length<=E,g.textContent=r.found.length<
t.length?`${_.format(r.found.length)} of ${_.format(t.length)} rows`:M.hidden?"":`first ${Se} of ${_.format(t.length)} r\
ows`}o&&!o.startsWith("span-")&&(bt.set(o,{find:P,has:w=>t.some(w)}),t.length>Se&&wt.add(V)),V();let B=s&&t.length>8;return d(
"div",{},d("div",{class:B?"tools":"tools alone"},B?[b,g,M]:g,k),d("div",{class:"table",tabindex:0,role:"region","aria-la\
bel":`${o.replaceAll("_"," ")} table`},f))}function Ns(n,t,[,e]){let s=t[n.key];if(s==null)return d("td",{class:n.unit===
"text"?"text nothing":"nothing"},"–");if(n.unit==="text"){let o=n.code?d("code",{},Z(String(s))):String(s),i=n.indent?
`${t[n.indent]*14}px`:null,a=n.front?d("bdi",{dir:"ltr"},o):o;return d("td",{class:n.front?"text front":"text",title:s,"\
--indent":i},a)}return n.unit==="share"?d("td",{class:"share","--share":`${Math.min(100,100*s)}%`},Et(s)):n.unit==="coun\
t"||s===0?d("td",{},_.format(s)):!(n.unit in yt)||e===1?d("td",{},z(s)):d("td",{},Math.abs(s/e)<.005?m(s,n.unit):Je(s/e))}
function Is(n,t){return n===t?0:n==null?-1:t==null?1:typeof n=="string"?n.localeCompare(t,"en",{numeric:!0}):n-t}var Bs=64,q=class{constructor(t,e,s){this.packed=t,this.tiles=e,this.lanes=s,this.kept=new Map}texts(){return this.unpacked??=
vt(this.packed.texts)}async of(t){let e=this.tiles.tileOf(t),{columns:s,sources:o,targets:i}=await this.tile(e),a=t-this.
tiles.first[e],l=await this.tiles.event(t);for(let r in s)l[r]=s[r][a];return l.gpu=this.lanes[l.lane].gpu,l.sources=this.
related(o,a),l.targets=this.related(i,a),l}tile(t){let e=this.kept.get(t);return e||(e=this.decode(t),this.kept.set(t,e),
this.kept.size>Bs&&this.kept.delete(this.kept.keys().next().value)),e}async decode(t){let{packed:e}=this,s=this.lanes[this.
tiles.tiles.lane[t]].gpu?e.gpu:e.cpu,o=r=>Nt(e[r].data[t],e.links,e[r].count[t]),[i,a,l]=await Promise.all([Nt(e.data[t],
s,this.tiles.tiles.count[t]),o("sources"),o("targets")]);return{columns:i,sources:a,targets:l}}related({kind:t,at:e,other:s},o){
let i=[];for(let a=0;a<e.length;a++)e[a]===o&&i.push({kind:this.packed.relations[t[a]],other:s[a]});return i}static first(t,e){
return t.find(s=>s.kind===e&&s.other>=0)?.other??null}};var Oe={caller:["Called by","Calls"],operator:["Launching operator","Device work launched"],launch:["Launch call","Launc\
hes"],forward:["Forward operator","Backward operator"],data:["Reads data of","Data read by"],thread:["Operator before it\
 on the thread","Next operator of the thread"],stream:["Before it on the stream","Next on the stream"],event:["Waits for\
 (event)","Awaited by (event)"],sync:["Waits for the device (sync)","Awaited by the host (sync)"],thread_handoff:["Hande\
d over by thread","Hands over to thread"],comm:["Collective before it","Next collective of the group"],graph:["Graph dep\
endency on","Graph dependency of"]},S=(n,t,e,s)=>({key:n,label:t,value:e,text:s??String(e)}),gn=n=>n.filter(t=>t&&(t.value??
-1)!==-1),dt=(n,t,e,s)=>S(n,t,e,m(e,s)),jt=(n,t,e)=>dt(n,t,e,"ns");function Me(n,t){return n.map((e,s)=>`[${e.join(", ")}\
]${t[s]?` ${t[s]}`:""}`).join(", ")}function yn(n){if(!n)return[];let{shapes:t,dtypes:e,outputs:s,output_dtypes:o}=n;return[
t.length?S("shapes","Inputs",t,Me(t,e)):null,s?.length?S("outputs","Outputs",s,Me(s,o)):null]}function xt(n,t){let e=[];
for(let s=t;s>0;s=n.path_parents[s])e.unshift(n.path_names[s]);return e}function bn(n,t,e){let s=t.modules?.[n.module],o=t.
stacks,i=o?.lines[o.line[n.entry]],a=[];for(let l=o&&n.entry>=0?n.entry:-1;l>=0;l=o.above[l])a.unshift(o.names[o.name[l]]);
return[n.phase>0?S("phase","Phase",t.phases[n.phase]):null,s&&!e.length?S("module","Module",s):null,i?S("source","Source\
 line",i):null,a.length?S("stack","Python stack",a,a.join(" › ")):null]}function wn(n,t,e){let s=n.links[t],o=n.evidence[s];
return o?[S("link",`Link of ${e} to the ET`,s),o.length?S("evidence","Evidence",o,o.join("; ")):null]:[]}function vn(n,t){
let e=xt(t,n.path);return gn([jt("self_ns","Self time",n.self_ns),n.device_events>0?dt("device_events","Device events",n.
device_events,"count"):null,n.device_ns>0?jt("device_ns","Device time",n.device_ns):null,...yn(t.signatures[n.signature]),
..._n(t.generated[n.generated]),e.length?S("modules","Modules",e,e.join(" / ")):null,...bn(n,t,e),S("correlation","Corre\
lation",n.correlation),S("seq","Sequence number",n.seq),S("id","Node id",n.id),S("kineto_event","Kineto event",n.kineto_event),
n.step>=0?S("step","Iteration",t.steps[n.step]):null,...wn(t,n.link,"the operator")])}var js="more than the device can: \
its peak, or what is counted, is of something else",pn=(n,t,e)=>S(n,t,e,e>1?`${m(e,"share")} (${js})`:m(e,"share")),fn=n=>Array.
isArray(n)&&n.length&&n.every(t=>Number.isInteger(t)&&t>0)?n.join(" × "):null,Bt=(n,t=1/0)=>typeof n=="number"&&n>=0&&n<=
t,Rs={grid:["Grid",fn],block:["Block",fn],context:["Context",String],"registers per thread":["Registers per thread",n=>Bt(
n,1024)?m(n,"count"):null],"shared memory":["Shared memory of a block",n=>Bt(n,2**24)?m(n,"bytes"):null],"blocks per SM":[
"Blocks launched, by number of SMs",n=>Bt(n)?z(n):null],"warps per SM":["Warps launched, by number of SMs",n=>Bt(n)?z(n):
null],"est. achieved occupancy %":["Occupancy, estimated",n=>Bt(n,100)?n?`${z(n)} %`:"< 0.5 %":null]},Fs={collective:["C\
ollective"],dtype:["Communicated type"],in_nelems:["Elements in","count"],out_nelems:["Elements out","count"],bytes:["Co\
mmunicated","bytes"],group_size:["Ranks of the group","count"],pg_name:["Group"],pg_desc:["Group is for"],pg_ranks:["Ran\
ks"],src_rank:["From rank"],dst_rank:["To rank"],seq:["Number in the group"],in_split:["Elements to each rank"],out_split:[
"Elements from each rank"],pg_first_rank:["First rank of the group"],inferred_messages:["Messages sent together (inferre\
d)"]};function Ds(n,t,e){return n==="inferred_messages"?t.map(s=>`${s.collective} ${s.dst_rank??s.src_rank??""}`.trim()).
join(", "):Array.isArray(t)?t.join(", "):e?m(t,e):String(t)}function Ws(n){return Object.entries(n).map(([t,e])=>{let[s,
o]=Fs[t],i=e===null?"":Ds(t,e,o);return e===null||i===""?null:S(`comm.${t}`,s,e,i)})}function zs(n){return Object.entries(
n).map(([t,e])=>{let[s,o]=Rs[t],i=e===null?null:o(e);return i===null?null:S(t,s,e,i)})}function Gs(n,t){if(!t?.memory_gb_s||
n.bytes<0)return!1;let e=t.cache_bytes??0,s=n.dur*t.memory_gb_s,o=e>0&&n.dur>0&&n.bytes>s&&n.bytes-2*e<=s;return n.bytes>
e&&!o}function kn(n,t,e,s,o){let i=o[e.device],a=t.dtypes[n.dtype],l=n.flops>=0&&n.dur?n.flops/n.dur*1e9:null,r=n.bytes>=
0&&n.dur?n.bytes/n.dur*1e9:null,h=i?.peaks?.[a]??null,u=Gs(n,i)?i.memory_gb_s*1e9:null,p=n.most_bytes>n.bytes,g=s?xt(t,s.
path):[];return gn([S("category","Category",t.categories[n.category]),s?S("operator","Operator",s.full):null,...s?yn(t.signatures[s.
signature]):[],g.length?S("modules","Modules",g,g.join(" / ")):null,...bn(n,t,g),jt("delay","Launch delay",n.delay),S("d\
evice","Device",e.device),S("stream","Stream",e.stream),..._n(t.generated[n.generated]),...zs(t.configs[n.config]??{}),n.
flops>=0?dt("flops","FLOPs",n.flops,"flop"):null,l===null?null:dt("flops_per_second","Rate",l,"flop/s"),l===null||!h?null:
pn("flops_share",`Share of the ${a} peak`,l/h),n.bytes>=0?dt("bytes",p?"Bytes, at least":"Bytes",n.bytes,"bytes"):null,p?
dt("most_bytes","Bytes, at most",n.most_bytes,"bytes"):null,r===null?null:dt("bytes_per_second","Bandwidth",r,"bytes/s"),
r===null||!u?null:pn("bytes_share","Share of the bandwidth",r/u),...Ws(t.comms[n.comm]??{}),S("correlation","Correlation",
n.correlation),S("id","Node id",n.id),S("kineto_event","Kineto event",n.kineto_event),n.step>=0?S("step","Iteration",t.steps[n.
step]):null,n.reason>0?S("reason","Not attached",t.reasons[n.reason]):null,n.repeated>=0?S("repeated","Operator, by repe\
tition in a later iteration",t.repeated[n.repeated]):null,...wn(t,n.link,"its operator"),...Hs(n,t)])}function _n(n){if(!n)
return[];let{region:t,backward:e,handle:s,nodes:o=[],lines:i}=n,a=t?`${t}${e?", backward":""}${s===void 0?"":`, call ${s}`}`:
"";return[S("generated","Compiled as",n.name),a?S("region","Compiled region",a):null,o.length?S("nodes",o.length>1?"Fuse\
d of":"Made of",o,o.join(", ")):null,i.length>1?S("lines","Source lines (fused)",i,i.join("; ")):null,n.kernel_file?S("k\
ernel_file","Kernel file",n.kernel_file):null,n.kernel_hash?S("kernel_hash","Kernel hash",n.kernel_hash):null,n.kernel_kwargs?
S("kernel_kwargs","Kernel constants",n.kernel_kwargs):null]}function Hs(n,t){let e=t.captured[n.captured];if(!e)return[];
let s=t.replays[n.replay],o=t.graphs[s?.graph],i=Me(e.shapes,e.dtypes);return[S("captured_by","Captured by",e.name),i?S(
"captured_shapes","Captured inputs",e.shapes,i):null,e.modules.length?S("captured_modules","Captured in",e.modules,e.modules.
join(" / ")):null,S("captured_link","Link to the capture",t.links[n.captured_link]),s?.evidence.length?S("captured_evide\
nce","Evidence for the graph",s.evidence,s.evidence.join(", ")):null,s?.candidates>1?S("candidates","Graphs that fit equ\
ally",s.candidates):null,o?S("graph","Graph",o.index,Us(o)):null]}function Us({index:n,file:t,batch_size:e}){return`${n}\
 of ${t}${e===null?"":`, batch size ${e}`}`}function Ks(n,t){let{stacks:e}=n;return t>=0&&e?.lines[e.line[t]]?.replace(/ \(.*\)$/s,"")||""}var xn=n=>n?.shapes.map(t=>`\
[${t.join(",")}]`).join(",")??"";async function oe(n){let t=n.gpu?q.first(n.sources,"operator"):n.number;return t===null?
null:A.timeline.inspector.details.of(t)}async function $n(n){let{data:t,inspector:e}=A.timeline,s=n;for(let o=n;o;){let i=q.
first(o.sources,"caller");o=i===null?null:await e.details.of(i),o&&t.kinds[o.kind].name==="Operator"&&(s=o)}return s}var $t=(n,t)=>({
gpu:t,has:(e,s,o)=>Ks(o,e.entry[s])===n});function Sn(n){let t=/ × \d+/.test(n)?tt(n.split(" / ")):null;return{has:({module:e},s,o)=>{
let i=o.modules[e[s]]??"";return t===null?i===n:tt(i.split(" / "))===t}}}function ut(n,t){let e=new Set(n);return{gpu:t,
has:({id:s},o)=>e.has(s[o])}}function Mn(n,t){let{tree:e,analysis:s}=t;if(!e.total_ns)return $("breakdown","Device time",null,x(null,null,ot("The tra\
ce has no GPU events.")));let o=d("div"),i=n.gpu_kinds;return W(o,460,()=>({tooltip:j(a=>{let l=a.treePathInfo.slice(1).
map(h=>h.name),r=a.data.of;return r?R(G(r.name,200),[l.length>1?["in",G(l.slice(0,-1).join(" › "),140)]:null,r.kind===
void 0?null:[r.level,i[r.kind].name],["time",m(r.total_ns,"ns")],["share",m(r.total_ns/e.total_ns,"share")],["GPU events",
m(r.count,"count")]].filter(Boolean)):null}),series:[{type:"treemap",data:(e.children??[]).map(a=>On(a,i)),left:0,right:0,
top:30,bottom:0,leafDepth:Vs(e),roam:!1,nodeClick:"zoomToNode",drillDownIcon:"",animationDuration:y.paper?0:200,visibleMin:20,
breadcrumb:{top:0,left:0,height:22,itemStyle:{color:y.value("sunk"),borderColor:y.value("line"),textStyle:{color:y.value(
"text")}},emphasis:{itemStyle:{color:y.value("accent-soft")}}},name:"All device time",label:{fontSize:12,padding:[3,5],lineHeight:15,
overflow:"truncate",formatter:a=>`${G(a.name,70)}
${m(a.value,"ns")}`},upperLabel:{show:!0,height:20,color:y.value("text"),fontSize:12,padding:[0,6],formatter:a=>`${G(a.name,
80)}  ${m(a.value/e.total_ns,"share")}`},itemStyle:{gapWidth:2,borderWidth:0,borderColor:y.value("card")},levels:[{itemStyle:{
gapWidth:3},upperLabel:{show:!1}},...[1,2,3,4,5,6,7,8].map(()=>({itemStyle:{gapWidth:2,borderWidth:2,borderColor:y.value(
"sunk")}}))]}]})),$("breakdown","Device time","By module, operator and kernel. A click goes into a part, the path above \
leads back.",x(null,null,F(ne(Ce(e),i)),o),O("By operator and kernel",U(t,"breakdown"),[c.code("kernel","Kernel"),c.count(
"count","Count"),c.ns("total_ns","Total"),c.ns("mean_ns","Mean"),c.share("share","Share"),c.code("op","Operator"),c.text(
"modules","In",{front:!0}),c.text("shapes","Shapes"),c.count("stream","Stream")],s.breakdown,{sort:"total_ns",name:"brea\
kdown",jump:qs}))}var qs=({device:n,stream:t,kernel:e,op:s,repeated:o,modules:i,shapes:a})=>({gpu:!0,device:n,stream:t,name:e,
op:o?"":s,fits:i||a?async(l,r)=>{let h=await oe(l),u=h&&await $n(h);if(!u||xn(r.signatures[u.signature])!==a)return!1;let p=q.
first(u.sources,"forward");return[u,p===null?null:await A.timeline.inspector.details.of(p)].some(f=>f&&xt(r,f.path).join(
" / ")===i)}:null});function Vs(n){let t=n.children,e=1;for(;e<6&&t.length<24;)t=t.flatMap(s=>s.children??[s]),e+=1;return e}
function Ce(n){return n.children?n.children.flatMap(Ce):[n]}function On(n,t){let e=n.children?.map(a=>On(a,t)),s=new Map;
for(let a of Ce(n))s.set(a.kind,(s.get(a.kind)??0)+a.total_ns);let o=[...s].reduce((a,l)=>l[1]>a[1]?l:a)[0],i=o===void 0?
"faint":t[o].color;return{name:n.name,value:n.total_ns,of:n,children:e,itemStyle:{color:K(i)},label:{color:it(y.color(i))}}}function Cn(n,t){let e=t.analysis.communication;if(!e.length)return null;let s=e.filter(l=>l.bytes&&l.algorithm_bandwidth),
o=d("div"),i=[...new Set(s.map(l=>l.collective||"unnamed"))],a=Math.max(...s.map(l=>l.total_ns));return s.length&&W(o,270,
()=>({grid:{left:80,right:16,top:14,bottom:44},tooltip:j(l=>{let r=l.data.row;return R(r.collective||"unnamed",[["messag\
e",m(r.bytes,"bytes")],["element type",r.dtype||"–"],["group",r.group||"–"],["ranks",r.group_size?String(r.group_size):
"–"],["kernels",m(r.count,"count")],["mean duration",m(r.mean_ns,"ns")],["algorithm bandwidth",m(r.algorithm_bandwidth,
"bytes/s")],["bus bandwidth",m(r.bus_bandwidth,"bytes/s")]])}),xAxis:L({type:"log",name:"message size",nameLocation:"mid\
dle",nameGap:28,unit:"bytes"}),yAxis:L({type:"log",unit:"bytes/s"}),series:i.map((l,r)=>({name:l,type:"scatter",symbol:ht[Q(
r)],itemStyle:{color:y.color(r),opacity:.8,borderColor:y.value("card")},symbolSize:(h,u)=>8+20*Math.sqrt(u.data.row.total_ns/
a),data:s.filter(h=>(h.collective||"unnamed")===l).map(h=>({value:[h.bytes,h.bus_bandwidth??h.algorithm_bandwidth],row:h}))}))})),
$("communication","Communication","Kernels of collectives; their durations hold the time that a rank waits in them for o\
thers, so bandwidths are what the job got, not what the links could give.",s.length?x("Bus bandwidth by message size","a\
lgorithm bandwidth where the number of ranks is unknown",F(i.map((l,r)=>({name:l,color:r}))),o):null,O("Collectives",U(t,
"communication"),[c.text("collective","Collective"),c.text("dtype","Type"),c.text("group","Group"),c.count("group_size",
"Ranks"),c.bytes("bytes","Message"),c.count("count","Count"),c.ns("total_ns","Total"),c.ns("mean_ns","Mean"),c.ns("min_n\
s","Least",{like:"mean_ns"}),c.bandwidth("algorithm_bandwidth","Algorithm"),c.bandwidth("bus_bandwidth","Bus",{like:"alg\
orithm_bandwidth"})],e,{sort:"total_ns",name:"communication",jump:Xs}))}var Xs=({collective:n,dtype:t,bytes:e})=>({gpu:!0,
has:(s,o,i)=>{let a=i.comms[s.comm[o]];return!!a&&(a.collective??"")===n&&(a.dtype??"").toLowerCase()===t&&Ys(a)===e},orElse:{
gpu:!0,has:(s,o)=>s.comm[o]>=0}});function Ys({bytes:n,in_nelems:t,out_nelems:e}){let s=t||e;return n===null||!s?n:Math.
floor(n/s)*Math.max(t??0,e??0)}function Ae(n){let t=n.steps??[];T("step-pick").hidden=!t.length,T("step").replaceChildren(d("option",{value:""},"all"),
...t.map((e,s)=>e.data?d("option",{value:s},e.name):d("option",{value:s,disabled:!0,title:"Not on this page; make one wi\
th --steps"},e.name)))}var Rt=({step:n,span_ns:t})=>n?{min:n.from,max:n.to}:{min:0,max:t};function at(n){let{report:t}=A,
e=t.ranks[T("rank").value].steps?.[T("step").value]?.number;T("rank").value=n,Ae(t.ranks[n]);let s=t.ranks[n].steps?.findIndex(
o=>o.number===e&&o.data)??-1;return T("step").value=s<0?"":s,A.draw(n,s<0?null:s)}async function An(n,{number:t}){let e=n.
ranks.map(async s=>{let o=s.steps?.find(i=>i.number===t&&i.data);return o?{...s,...o.unpacked??=await vt(o.data),step:o}:
s});return{...n,ranks:await Promise.all(e)}}var Js={measured:"the trace shows the problem and its cost",likely:"the trace shows the symptom, whose usual cause this \
is",possible:"the trace shows what often goes with the problem"};function ie(n,t){let{findings:e}=n;if(!e)return null;let s=e.
found.filter(({where:l})=>!t.step||!l.step||l.step===t.step.name),o=s.slice(0,e.first||s.length),i=s.slice(o.length),a=i.
length?d("details",{class:"more"},d("summary",{},`${i.length} with less to gain`),i.map((l,r)=>En(n,l,o.length+r))):null;
return $("findings","Findings",Zs(e,s),o.map((l,r)=>En(n,l,r)),a,ct("notes",e.notes))}function Zs({found:n,none_reason:t,
looked_for:e,base_error:s,makespan_ns:o,together:i},a){let l=s?`The replay that prices them is off by ${tn(s.makespan)}`:
"",r=i?`the first ${Math.min(3,n.filter(p=>p.gain).length)} together gain ${Le(i,o)}`:"",h=a.some(p=>p.gain)?"largest ga\
in":"greatest cost";return`${[t?t[0].toUpperCase()+t.slice(1):`${a.length} of ${e.length} things looked for, the ${h} fi\
rst`,r].filter(Boolean).join("; ")}. ${l?`${l}.`:""}`}function Le({ns:n,low_ns:t,high_ns:e},s){let o=s?`, ${m(n/s,"share")}\
 of ${m(s,"ns")}`:"";return`${m(n,"ns")} (${m(t,"ns")} to ${m(e,"ns")})${o}`}function En(n,t,e){let{id:s,title:o,evidence:i,
certainty:a,advice:l,check:r,command:h,cost_ns:u,gain:p,where:g}=t,{makespan_ns:f}=n.findings,b=p?.replayed_ns??null,M=d(
"article",{class:"card finding",id:`finding-${e+1}`,"data-finding":s,"aria-labelledby":`finding-${e+1}-title`}),v=!!n.difference,
k=v?null:w=>E=>no(M,n,t,w,E.currentTarget),C=[v?null:p?["Gain",`${Le(p,f)}${p.unexplained?`; the replay does not explain\
 ${m(p.unexplained,"share")}`:""}`]:["Gain","not replayed"],u===null?null:["At stake",m(u,"ns")],["Certainty",`${a}: ${Js[a]??
""}`]],P=i.every(w=>w.command===i[0].command)?i[0].command:null,I=i.map(({text:w,value:E,unit:N,command:X})=>d("li",{},w,
E===null?null:d("b",{},` ${Qe(E,N)}`),P===null?[" ",Ee(X)]:null)),V=[...C.filter(Boolean),["Where",eo(t,k)]].filter(w=>w[1]!==
null),B=[["Evidence",d("div",{},d("ul",{class:"proof"},I),P?Ee(P):null)],["Try",l],["Check",r],h?["What if",d("div",{},Ee(
h),b?Y(` prints ${m(b,"ns")}, with what recording cost`):null)]:null].filter(Boolean);return M.append(d("header",{},d("s\
pan",{class:"rank"},String(e+1)),d("h3",{id:`finding-${e+1}-title`},o),(k?to(g):[]).map(([w,E],N)=>d("button",{type:"but\
ton",class:N?"other":"go",title:`${w}, in the timeline`,onclick:k(E)},N?w:"Show in the timeline"))),p?Qs(p,f):"",d("div",
{class:"halves"},ft(V),ft(B))),M}function Qs({ns:n,low_ns:t,high_ns:e},s){let o=i=>`${Math.max(0,Math.min(100,100*i/(s||
1))).toFixed(2)}%`;return d("div",{class:"gain",role:"img","aria-label":`Gain: ${Le({ns:n,low_ns:t,high_ns:e},s)}`,"--ga\
in":o(n),"--low":o(t),"--high":o(e)},d("i",{}),d("s",{}))}function Ee(n){let t=d("button",{type:"button",class:"copy","a\
ria-label":`Copy: ${n}`,title:"Copy the command"},"Copy");return t.addEventListener("click",async()=>{t.textContent=await Ut(
n)?"Copied":"Not allowed"}),d("span",{class:"command"},d("code",{},n),t)}function to({kernel:n,operator:t,stream:e,rows:s,
start_ns:o,end_ns:i}){let a=n?{gpu:!0,name:n}:t?{gpu:!1,name:t}:void 0,l=o!==void 0&&i!==void 0?{from:o,to:i}:null,r=[s?.
length?["Longest event",{...ut(s),orElse:a??l}]:null,l?["Its time",l]:null].filter(Boolean);return n||t||e!==void 0?r:r.
reverse()}function eo({where:n},t){let{source:e,module:s,operator:o,kernel:i,phase:a,stream:l,step:r,rank:h,rows:u}=n,p=(b,M,v)=>({
row:[b,M],place:v}),g=[e&&["line",e,p("sources",b=>b.place===e,{...$t(e),orElse:ut(u??[])})],s&&["module",s.replaceAll("\
 / "," › "),p("modules",b=>b.path===tt(s.split(" / ")),Sn(s))],o&&["operator",o,{place:{...ut(u??[],!1),name:o,orElse:{
gpu:!1,name:o}}}],i&&["kernel",Z(i),{place:{...ut(u??[],!0),orElse:{gpu:!0,name:i}}}]].filter(Boolean),f=[a,r,l===void 0?
null:`stream ${l}`,h===void 0?null:`rank ${h}`].filter(Boolean);return!g.length&&!f.length?null:d("span",{class:"chain"},
g.map(([b,M,v])=>{let k=[Y(b),d("bdi",{dir:"ltr"},M)];return t?d("button",{type:"button","data-part":b,title:`${b}: ${M}`,
onclick:t(v.place,v.row)},k):d("span",{"data-part":b},k)}),f.length?d("span",{class:"said"},f.join(" · ")):null)}async function no(n,t,{
where:e},s,o){let i=t.ranks.findIndex(a=>a.rank===e.rank);return i>=0&&t.ranks.length>1&&Number(T("rank").value)!==i&&(await at(
i),o=document.querySelector(`#${n.id} .go`)),_t(s,o)}var so=.03;function oo(n){let t=n.difference,e=t.per_iteration?"an iteration":"whole trace",s=(o,i)=>o?`${(i/o).toFixed(
2)} × A`:"";return $("overview","Overview",t.per_iteration?`Means of an iteration: ${t.iterations_a} of A, ${t.iterations_b}\
 of B.`:"The whole traces are compared.",ct("warnings",t.damage),d("div",{class:"tiles"},D(`Device time, ${e}: A`,m(t.total_a,
"ns"),t.a),D(`Device time, ${e}: B`,m(t.total_b,"ns"),`${t.b} · ${s(t.total_a,t.total_b)}`),D(`Length, ${e}: A`,m(t.latency_a,
"ns"),t.device_a),D(`Length, ${e}: B`,m(t.latency_b,"ns"),`${t.device_b} · ${s(t.latency_a,t.latency_b)}`)),ao(t))}function io(n){
let{lines:t}=n.difference;if(!t.length)return null;let e=t.some(s=>s.a_device_ns||s.b_device_ns)?"device_ns":"host_ns";return $(
"lines","Source lines","Lines that call other operators come first; a line that only moved in its file is one row.",O(null,
null,[c.code("place","Line"),c.text("what","What is new"),c.ns("change_ns","Change"),c.ns(`a_${e}`,"A"),c.ns(`b_${e}`,"B"),
c.count("a_calls","Calls in A"),c.count("b_calls","Calls in B")],t,{sort:"",name:"lines"}))}function ao(n){let t=(o,i)=>o.
slice(0,10).map(a=>n.ops.find(l=>l.name===a)).filter(a=>a&&a.change_ns*i>0),e=[c.code("name","Operator"),c.ns("change_ns",
"Change"),c.other("ratio","B / A","×")],s=(o,i,a)=>x(o,null,i.length?H(e,i,{sort:"",filter:!1,name:a}):ot("None."));return et(
[6,6],s("Slower in B, the most first",t(n.losses,1),"slower"),s("Faster in B, the most first",t(n.gains,-1),"faster"))}function ro(n){
let{a:t,b:e}=n.difference.iteration_list;if(!t.length||!e.length)return null;let s=d("div"),o=["A","B"],i=[t,e],a=Math.max(
t.length,e.length);return W(s,240,()=>({grid:{left:74,right:20,top:14,bottom:40},tooltip:j(l=>R(`iteration ${l[0].dataIndex}`,
l.map(r=>[r,i[o.indexOf(r.seriesName)][r.dataIndex]]).filter(([,r])=>r).map(([r,h])=>[`${r.seriesName} (${h.name})`,m(h.
latency_ns,"ns")])),{trigger:"axis"}),xAxis:L({type:"category",data:Array.from({length:a},(l,r)=>String(r))}),yAxis:L({type:"\
value",min:0,unit:"ns"}),series:i.map((l,r)=>({name:o[r],type:"bar",barMaxWidth:26,itemStyle:{color:K(r)},data:l.map(h=>h.
latency_ns)}))})),$("iterations","Iterations","Each trace's iterations in order, by their length.",x(null,null,s,F(o.map(
(l,r)=>({name:l,color:r})))),lo(n.difference.phases))}function lo(n){let t=n.map(({phase:e,a:s,b:o,ratio:i})=>({phase:e,
a_steps:s?.steps,a_ns:s?.mean_latency_ns,a_rate:s?.tokens_per_second,b_steps:o?.steps,b_ns:o?.mean_latency_ns,b_rate:o?.
tokens_per_second,ratio:i}));return O("Serving steps by phase","mean latency of a step, new tokens per second",[c.text("\
phase","Phase"),c.count("a_steps","A steps"),c.ns("a_ns","A latency"),c.other("a_rate","A tokens/s"),c.count("b_steps","\
B steps"),c.ns("b_ns","B latency",{like:"a_ns"}),c.other("b_rate","B tokens/s"),c.other("ratio","B / A","×")],t,{sort:"",
filter:!1,name:"serving_phases"})}function co(n){let t=n.difference;if(!t.paths.length)return null;let e=t.paths.some(r=>r.
a?.device_ns||r.b?.device_ns),s=e?"device_ns":"host_ns",o=e?"change_launched_ns":"change_self_ns",i=e?"change_device_ns":
"change_host_ns",a=e?"launched_ns":"self_ns",l=t.paths.filter(r=>r[o]).map(r=>({...r,a:r.a?.[a],b:r.b?.[a]}));return $("\
paths","Call tree",`The same operator below the same callers in both traces, by ${e?"the device time that it launches":"\
its host time"}.`,x("Where it changes",e?"device time launched by the call itself":"host time of the call itself",H([c.code(
"path","Call path"),c.ns("a","A"),c.ns("b","B",{like:"a"}),c.ns(o,"Change")],l,{sort:o,name:"paths"})),x("The tree",t.paths_left_out?
`${_.format(t.paths_left_out)} smaller paths are left out`:null,ho(t.paths,s,i)))}function ho(n,t,e){let s=d("div",{class:"\
paths"}),o=[s],i=so*Math.max(...n.map(a=>Math.abs(a[e])));return n.forEach((a,l)=>{let r=(n[l+1]?.depth??0)<=a.depth,h=[
d("code",{title:a.path},G(a.name,70)),` ${m(a.a?.[t],"ns")} → ${m(a.b?.[t],"ns")} `,d("b",{},`${a[e]>0?"+":""}${m(a[e],
"ns")}`)];o.length=a.depth+1;let u=r?d("div",{},h):d("details",{open:Math.abs(a[e])>=i},d("summary",{},h));a.depth&&(u.style.
marginLeft="18px"),(o[a.depth]??s).append(u),o[a.depth+1]=u}),s}function uo(n){let t=n.difference,e=a=>a.map(l=>({...l,a_count:l.
a?.count,a_ns:l.a?.total_ns,b_count:l.b?.count,b_ns:l.b?.total_ns})),s=[c.code("name","Name"),c.other("a_count","A count",
"number"),c.ns("a_ns","A"),c.other("b_count","B count","number"),c.ns("b_ns","B",{like:"a_ns"}),c.ns("change_ns","Change",
{like:"a_ns"}),c.other("ratio","B / A","×")],o=a=>t.left_out[a]?`${_.format(t.left_out[a])} more in --json`:null;t.host_ops&&
s.push(c.count("rank","Most on rank"),c.ns("rank_change_ns","Change there",{like:"a_ns"}));let i=t.host_ops?.length?x("H\
ost",o("host_ops"),H(s,e(t.host_ops),{sort:"change_ns",name:"host_ops"})):null;return $("tables","Operators and kernels",
"Matched by name; a dash where one trace has none.",i,x("Operators",o("ops"),H(s,e(t.ops),{sort:"change_ns",name:"ops"})),
x("Kernels",o("kernels"),H(s,e(t.kernels),{sort:"change_ns",name:"diff_kernels"})))}function mo(n){let{ranks:t,only_a:e,
only_b:s,per_iteration:o}=n.difference;if(!t)return null;let i=[["A",e],["B",s]].filter(([,l])=>l.length).map(([l,r])=>`${_.
format(r.length)} ranks only in ${l} are left out`),a=[c.count("rank","Rank"),c.ns("a_ns","A"),c.ns("b_ns","B",{like:"a_\
ns"}),c.ns("change_ns","Change",{like:"a_ns"}),c.other("ratio","B / A","×"),c.ns("a_device_ns","Device, A"),c.ns("b_dev\
ice_ns","Device, B",{like:"a_device_ns"}),c.ns("a_communication_ns","Communication, A"),c.ns("b_communication_ns","Commu\
nication, B")];return $("ranks","Ranks",o?"An iteration of each rank, on average.":"The whole trace of each rank.",x(null,
i.join("; "),H(a,t,{sort:"change_ns",name:"diff_ranks"})))}var Ln=[ie,oo,mo,io,ro,co,uo];var Tn=20,po=2,Pn=3,Te=[{name:"Operator",color:0},{name:"Annotation and module",color:10},{name:"Runtime call",color:9},
{name:"Thread",color:8},{name:"Python function",color:1}];function fo({names:n,name:t,parent:e,kind:s,count:o,total:i}){
let a={name:"All threads",kind:Pn,count:0,total:0,parent:null,children:[],level:0},l=t.map((r,h)=>({name:n[r],kind:s[h],
count:o[h],total:i[h]}));return l.forEach((r,h)=>{r.parent=e[h]<0?a:l[e[h]],r.level=r.parent.level+1,r.children=[],r.own=
r.total,r.parent.children.push(r),r.parent.own-=r.total}),a.total=a.children.reduce((r,h)=>r+h.total,0),a.own=0,a}var Pe=class{constructor(t){
this.root=fo(t),this.shown=this.current=this.root.children.length===1?this.root.children[0]:this.root,this.text="",this.
hits=[],this.boxes=d("div",{class:"flame",role:"tree","aria-label":"Host time by call tree"}),this.picked=d("div",{class:"\
picked",role:"status"}),this.said=d("span",{class:"said",role:"status"}),this.input=d("input",{type:"search",placeholder:"\
Search names…","aria-label":"Search the flame graph",oninput:()=>this.search(this.input.value),onkeydown:e=>gt(e,this.
at,this.hits.length,s=>this.go(s))}),this.node=d("div",{},d("div",{class:"tools"},this.input,this.said,d("button",{type:"\
button",class:"push",onclick:()=>this.zoom(this.root)},"Whole")),this.boxes,this.picked),this.boxes.addEventListener("ke\
ydown",e=>this.key(e)),new ResizeObserver(()=>this.width!==this.boxes.clientWidth&&this.draw()).observe(this.boxes)}search(t){
this.text=t.toLowerCase(),this.hits=[];let e=s=>{s.name.toLowerCase().includes(this.text)&&this.hits.push(s),s.children.
forEach(e)};this.text&&this.root.children.forEach(e),this.hits.sort((s,o)=>o.total-s.total),this.at=-1,this.said.textContent=
this.text?`${_.format(this.hits.length)} places`:"",this.draw()}go(t){this.at=t,this.current=this.hits[t],this.zoom(this.
current.children.length?this.current:this.current.parent),this.said.textContent=`${this.at+1} of ${_.format(this.hits.length)}\
 places`}zoom(t){this.shown=t,this.visible(this.current)||(this.current=t),this.draw()}visible(t){for(let e=t;e;e=e.parent)
if(e===this.shown)return!0;for(let e=this.shown;e;e=e.parent)if(e===t)return!0;return!1}draw(){this.width=this.boxes.clientWidth;
let t=[],e=[];for(let i=this.shown.parent;i;i=i.parent)e.unshift(i);for(let i of e)t.push(this.box(i,0,this.width));let s=this.
shown.level,o=(i,a,l)=>{t.push(this.box(i,a,l)),s=Math.max(s,i.level);for(let r of i.children){let h=r.total/(i.total||1)*
l;h>=po&&o(r,a,h),a+=h}};o(this.shown,0,this.width),this.boxes.style.height=`${(s+1)*Tn}px`,this.boxes.replaceChildren(...t),
this.announce(this.current)}box(t,e,s){let o=this.text&&!this.hits.includes(t),i=d("div",{class:`box${o?" faded":""}${t===
this.current?" at":""}`,role:"treeitem",tabindex:t===this.current?0:-1,"aria-level":t.level+1,"aria-label":this.describe(
t),title:this.describe(t),onclick:()=>this.pick(t,!0),onfocus:()=>this.announce(t),"--look":Vt(Te[t.kind].color),"--ink":it(
y.color(Te[t.kind].color))},s>24?Z(t.name):"");return i.style.left=`${e}px`,i.style.width=`${Math.max(1,s-1)}px`,i.style.
top=`${t.level*Tn}px`,t.box=i,i}describe(t){let e=m(t.total/(this.root.total||1),"share"),s=t.kind===Pn?"":`, ${m(t.own,
"ns")} itself, ${m(t.count,"count")} calls`;return`${t.name}: ${m(t.total,"ns")} (${e})${s}`}announce(t){let e=[];for(let s=t.
parent;s&&s.parent;s=s.parent)e.unshift(Z(s.name));this.picked.replaceChildren(d("code",{},Z(t.name)),` ${this.describe(
t).slice(t.name.length+1)}`,e.length?` · in ${e.join(" › ")}`:"")}pick(t,e){this.current=t,e?this.zoom(t):this.draw(),
t.box?.focus({preventScroll:!0}),t.box?.scrollIntoView({block:"nearest"})}key(t){let e=this.current,s=e.parent?.children.
filter(i=>i.box?.isConnected)??[e],o={ArrowDown:()=>e.children.find(i=>i.box?.isConnected),ArrowUp:()=>e.parent,ArrowLeft:()=>s[s.
indexOf(e)-1],ArrowRight:()=>s[s.indexOf(e)+1],Home:()=>this.root}[t.key];if(t.key==="Enter"||t.key===" ")this.pick(e,!0);else if(t.
key==="Escape")this.zoom(this.root);else if(o){let i=o();i&&this.pick(i,!this.visible(i))}else return;t.preventDefault()}};
function Nn(n,t){if(!t.flame.name.length)return null;let e=new Pe(t.flame),s=t.flame.left_out,o=s?d("span",{},`${_.format(
s)} smaller boxes are left out`):null;return Zt(e),$("flame","Host time","The call tree of each thread, calls of one nam\
e below one caller together; the width is their time. A click fills the width with a box; arrow keys move, Enter zooms.",
x(null,null,F(Te.filter((i,a)=>t.flame.kind.includes(a)),{more:o}),e.node))}var In=24;function nt(n,{unit:t="ns",click:e=null}={}){let s=[...new Map(n.flatMap(p=>p.parts.filter(g=>g.ns>0).map(g=>[
g.name,g.color])))],o=d("div"),i=n.length>24?18:30,a=n.slice().reverse(),l=Math.max(...n.map(p=>p.whole))||1,r=n.some(p=>p.
name);W(o,Math.max(34,n.length*i)+(r?26:0),()=>({grid:{left:0,right:8,top:0,bottom:0,outerBoundsMode:"same",outerBounds:{
left:0,right:8,top:0,bottom:0}},tooltip:j(p=>{let g=a[p.dataIndex],f=g.parts.find(b=>b.name===p.seriesName);return R(g.name?
`${g.name}: ${f.name}`:f.name,[[t==="ns"?"time":"size",m(f.ns,t)],["share",m(f.ns/(g.whole||1),"share")]])}),xAxis:L({type:"\
value",max:l,show:r,splitNumber:6,splitLine:{show:r,lineStyle:{color:y.value("line")}},unit:t,axisLabel:{hideOverlap:!0}}),
yAxis:L({type:"category",data:a.map(p=>G(p.name,26)),show:r,axisLine:{show:!1}}),series:s.map(([p,g])=>({name:p,type:"ba\
r",stack:"all",barWidth:i<In?i-5:i-10,barMinHeight:0,itemStyle:{color:K(g),borderColor:y.value("card"),borderWidth:.5},data:a.
map(f=>f.parts.find(b=>b.name===p)?.ns??0),label:{show:i>=In,color:g==="line"?y.value("muted"):it(y.color(g)),fontSize:11.5,
overflow:"truncate",formatter:f=>f.value/l>.06?`${Et(f.value/(a[f.dataIndex].whole||1))} %`:""}}))}),p=>{e&&p.on("click",
g=>e(a.length-1-g.dataIndex))});let h=p=>` ${m(n[0].parts.find(g=>g.name===p).ns,t)}`,u=s.map(([p,g])=>({name:n.length===
1?p+h(p):p,color:g}));return d("div",{},o,F(u))}var go="From the device's first GPU event to the end of its last one",yo="already launched",Bn=[c.ns("busy_ns","Busy"),c.
ns("idle_ns","Idle"),c.share("busy_share","Busy"),c.share("busy_share_of_gpu_span","of GPU span",{hint:go})];function jn(n,t){
let{streams:e,device_use:s,iteration_list:o}=t.analysis;if(!e.length)return null;if(!s.length)return bo(e);let i=s.length>
1,a=[...e].sort((r,h)=>h.busy_ns-r.busy_ns).slice(0,12),l=t.gaps.map(r=>({...r,cause:wo(r)}));return $("idle","Idle and \
overlap","How much of the time each stream works, what runs at the same time, and where the longest gaps are.",et([6,6],
x("Streams",e.length>a.length?`the ${a.length} busiest of ${e.length}`:null,nt(a.map(r=>({name:Ie(r,i),whole:r.window_ns,
parts:[{name:"Busy",color:0,ns:r.busy_ns},{name:"Idle",color:"line",ns:r.idle_ns}]})))),o.length?vo(t):null),O("Devices",
null,[c.count("device","Device"),c.ns("window_ns","Window"),...Bn,c.ns("overlapped_ns","Two streams or more"),c.ns("comp\
ute_ns","Computing"),c.ns("copy_ns","Copying"),c.ns("communication_ns","Communicating"),c.ns("exposed_communication_ns",
"of it exposed",{hint:"With no computing kernel beside it"})],s,{sort:"busy_ns",filter:!1,name:"device_use",jump:Ne}),O(
"Streams in numbers",null,[i?c.count("device","Device"):null,c.count("stream","Stream"),c.count("events","Events"),c.ns(
"total_ns","Sum of events"),...Bn],e,{sort:"busy_ns",name:"streams",jump:Ne}),O("Longest gaps",null,[c.ns("idle_ns","Idl\
e"),c.ns("start","At"),c.text("cause","Cause",{hint:"Whether the next event had been launched when the gap began"}),c.ns(
"launch_ns","Launched after",{hint:"From the gap's start to the launch of the event that ends it"}),c.code("host","Host \
meanwhile",{hint:"What takes most of the gap by itself on the launching thread: an operator, a runtime call, or neither"}),
c.ns("host_ns","for",{like:"idle_ns"}),c.code("launched_by","Next operator"),c.code("source","Next line",{front:!0}),c.code(
"after","Next event"),c.code("before","Event before")],l,{sort:"idle_ns",name:"gaps",jump:r=>({from:r.start,to:r.start+r.
idle_ns})}))}function bo(n){return $("idle","Streams","Sums of durations; no start times were recorded, so that busy and\
 idle time are not known.",O("Streams in numbers",null,[c.count("device","Device"),c.count("stream","Stream"),c.count("e\
vents","Events"),c.ns("total_ns","Sum of events")],n,{sort:"total_ns",name:"streams",jump:Ne}))}function wo({before:n,after:t,
launch_ns:e}){if(!t)return"no event any more";let s=e===null?"launch not in the trace":e>0?"host launched late":yo;return n?
s:`no event yet: ${s}`}var Ne=({device:n,stream:t})=>({gpu:!0,device:n,stream:t});function Ie({device:n,stream:t},e){return e?
`GPU ${n} · stream ${t}`:`stream ${t}`}function vo(n){let t=n.analysis.iteration_list,e=d("div"),s=[{name:"GPU busy",color:0,
value:o=>o.gpu_ns},{name:"GPU idle",color:"line",value:o=>o.latency_ns-o.gpu_ns}];return W(e,210,()=>({grid:{left:62,right:10,
top:12,bottom:26},tooltip:j(o=>{let i=t[o.dataIndex];return R(i.name,[["length",m(i.latency_ns,"ns")],["a device busy",m(
i.gpu_ns,"ns")],["share",m(i.gpu_ns/(i.latency_ns||1),"share")]])}),xAxis:L({type:"category",data:t.map(o=>o.name),splitLine:{
show:!1},axisLabel:{hideOverlap:!0,formatter:o=>o.replace("ProfilerStep#","step ")}}),yAxis:L({type:"value",splitNumber:4,
unit:"ns"}),series:s.map(({name:o,color:i,value:a})=>({name:o,type:"bar",stack:"all",barMaxWidth:46,itemStyle:{color:K(i)},
data:t.map(a)}))})),x("Iterations",`mean ${m(n.analysis.iterations.mean_latency_ns,"ns")}`,e,F(s))}var ko=260,Rn=0,Fn=1;function _o(n,t,e){let s=d("div",{"aria-label":`${t.title} of each rank`}),o=new Set(t.outliers),i=a=>n.
numbers.map((l,r)=>[l,t.values[r]]).filter(([l,r])=>r!==null&&o.has(l)===a);return W(s,ko,()=>({grid:{left:0,right:12,top:12,
bottom:0,outerBoundsMode:"same",outerBounds:{left:0,right:12,top:12,bottom:0}},tooltip:j(a=>R(`rank ${a.value[0]}`,[[t.title,
m(a.value[1],"ns")]])),xAxis:L({type:"value",min:"dataMin",max:"dataMax",minInterval:1,splitLine:{show:!1}}),yAxis:L({type:"\
value",scale:!0,splitNumber:4,unit:"ns"}),series:[{name:"Ranks",type:"scatter",symbolSize:4,itemStyle:{color:y.color(Rn)},
data:i(!1)},{name:"Stand out",type:"scatter",symbol:"diamond",symbolSize:10,itemStyle:{color:y.color(Fn)},data:i(!0)}]}),
a=>a.on("click",l=>e(l.value[0]))),d("div",{},s,F([{name:"Ranks",color:Rn},{name:"Stand out",color:Fn}]))}function Dn(n){
let{many:t}=n;if(!t)return null;let e=u=>n.ranks.findIndex(p=>p.rank===u),s=d("div",{class:"picked",role:"status"}),o=d(
"div"),i=u=>{let p=e(u);if(p<0){s.replaceChildren(`rank ${u} is not in this page: `,d("code",{},`etplus report … --ranks\
 ${u}`));return}T("rank").value=p,A.draw(p)},a=d("select",{"aria-label":"Quantity",onchange:()=>l()},t.quantities.map((u,p)=>d(
"option",{value:p},u.title))),l=()=>{for(let u of J)o.contains(u.node)&&(u.instance?.dispose(),J.delete(u));o.replaceChildren(
_o(t,t.quantities[a.value||0],i));for(let u of J)o.contains(u.node)&&o.isConnected&&u.draw()};l();let r=u=>u.length?`${u.
slice(0,12).join(", ")}${u.length>12?", …":""}`:"none",h=t.tables.map(({title:u,name:p,columns:g,rows:f,left_out:b})=>O(
u,b?`${_.format(b)} more rows are left out`:null,g,f,{sort:"",name:`job_${p}`,click:g[0].title==="rank"?M=>i(M[0]):void 0}));
return $("many","All ranks",`Only ${n.ranks.length} of ${_.format(t.numbers.length)} ranks are shown in detail below: th\
ose that stand out, the first and the middle one. A click on one of them shows it.`,d("div",{class:"tiles"},D("Ranks",_.
format(t.numbers.length),`${n.ranks.length} in detail`),D("Stragglers",_.format(t.stragglers.length),r(t.stragglers)),D(
"Stand out",_.format(t.outliers.length),r(t.outliers))),x("Each rank",null,d("div",{class:"tools"},a),o,s),...h)}var Wn={prefill:1,decode:0,mixed:6,capture:4,idle:"line",unknown:9},xo=30,Gn=(n,{start_ns:t,latency_ns:e})=>{let s=t-n.start_ns;
return{from:s,to:s+e}};function $o(n,t,e){let s=t.filter(o=>o.phase===e||e==="all");return s.length?Gn(n,s.reduce((o,i)=>i.
latency_ns>o.latency_ns?i:o)):null}function Hn(n,t){let{serving_steps:e,serving_phases:s}=t.analysis;if(!e.length)return null;
let o=Object.keys(Wn).filter(a=>e.some(l=>l.phase===a)).map(a=>({name:a,color:Wn[a]})),i=e.filter(a=>a.tokens_per_second!==
null);return $("serving","Serving","Steps of the serving engine: from the start of the annotation to its end, or to that\
 of the last device event that it launched.",x("Phases over time",null,Mo(t,e,o)),et([6,6],x("Latency of steps",So(e),zn(
t,e,o,"latency_ns","ns")),i.length?x("Tokens per second","new tokens of a step over its time",zn(t,i,o,"tokens_per_secon\
d","tokens/s")):null),Oo(t,e,o),O("Phases",null,[c.text("phase","Phase"),c.count("steps","Steps"),c.count("tokens","Toke\
ns"),c.ns("mean_latency_ns","Mean latency"),c.ns("p50_latency_ns","p50"),c.ns("p90_latency_ns","p90"),c.ns("p99_latency_\
ns","p99"),c.ns("longest_ns","Longest"),c.ns("device_ns","GPU busy"),c.ns("idle_ns","Idle"),c.ns("host_before_ns","Host \
before"),c.other("tokens_per_second","Tokens/s"),c.ns("ns_per_output_token","Per output token"),c.ns("ns_per_prefill_tok\
en","Per prefill token")],s,{sort:"",filter:!1,name:"serving_phases",jump:({phase:a})=>$o(t,e,a)}),O("Steps",U(t,"servin\
g_steps"),[c.text("step","Step"),c.text("phase","Phase"),c.count("prefill_requests","Prefill requests"),c.count("prefill\
_tokens","Prefill tokens"),c.count("decode_requests","Decode requests"),c.count("decode_tokens","Decode tokens"),c.count(
"keys","Keys"),c.ns("latency_ns","Latency"),c.ns("host_before_ns","Host before"),c.ns("device_ns","GPU busy"),c.ns("idle\
_ns","Idle"),c.count("events","GPU events"),c.other("tokens_per_second","Tokens/s"),c.other("flops","FLOPs","flop"),c.bytes(
"bytes","Bytes")],e,{sort:"",name:"serving_steps",jump:a=>Gn(t,a)}))}function So(n){let t=n.filter(e=>e.time_ns<e.latency_ns).
length;return t?`${t} of ${n.length} begin before the device has done with the one before`:null}function Un(n,t){let e=(s,o)=>s?
`${m(o,"count")} of ${m(s,"count")} requests`:null;return R(`step ${t.step}: ${t.phase}`,[["at",m(t.start_ns-n.start_ns,
"ns")],["latency",m(t.latency_ns,"ns")],["GPU busy",m(t.device_ns,"ns")],["prefill tokens",e(t.prefill_requests,t.prefill_tokens)],
["decode tokens",e(t.decode_requests,t.decode_tokens)],["keys",t.keys===null?null:m(t.keys,"count")],["tokens/s",t.tokens_per_second===
null?null:z(t.tokens_per_second)]])}function Mo(n,t,e){let s=d("div"),o=new Map(e.map((i,a)=>[i.name,a]));return W(s,52+
26*e.length,()=>({grid:{left:74,right:24,top:8,bottom:30},tooltip:j(i=>Un(n,i.data.row)),xAxis:L({type:"value",...Rt(n),
unit:"ns",axisLabel:{hideOverlap:!0}}),yAxis:L({type:"category",data:e.map(i=>i.name),inverse:!0}),dataZoom:[{type:"insi\
de",filterMode:"none"}],series:[{type:"custom",encode:{x:[1,2],y:0},renderItem:(i,a)=>{let[l,r]=a.coord([a.value(1),a.value(
0)]),[h]=a.coord([a.value(2),a.value(0)]);return{type:"rect",shape:{x:l,y:r-8,width:Math.max(h-l,1),height:16},style:{fill:K(
e[a.value(0)].color),stroke:y.value("card"),lineWidth:.5}}},data:t.map(i=>{let a=i.start_ns-n.start_ns;return{value:[o.get(
i.phase),a,a+i.latency_ns],row:i}})}]})),s}function zn(n,t,e,s,o){let i=d("div"),a=t.map(r=>r[s]).filter(r=>r>0),l=a.length>
1&&Math.max(...a)>xo*Math.min(...a);return W(i,240,()=>({grid:{left:84,right:24,top:14,bottom:28},tooltip:j(r=>Un(n,r.data.
row)),xAxis:L({type:"value",...Rt(n),unit:"ns",axisLabel:{hideOverlap:!0}}),yAxis:L({type:l?"log":"value",min:l?void 0:0,
unit:o}),dataZoom:[{type:"inside",filterMode:"none"}],series:e.map(({name:r,color:h})=>({name:r,type:"scatter",symbolSize:t.
length>200?5:9,symbol:ht[Q(h)],itemStyle:{color:y.color(h),opacity:.85},data:t.filter(u=>u.phase===r&&(!l||u[s]>0)).map(
u=>({value:[u.start_ns-n.start_ns,u[s]],row:u}))}))})),d("div",{},i,F(e))}function Oo(n,t,e){let s=t.filter(v=>v.flops>0&&
v.bytes>0&&v.device_ns>0),o=Object.values(n.analysis.devices).filter(v=>Object.keys(v.peaks).length&&v.memory_gb_s);if(!s.
length)return null;let i=v=>[v.flops/v.bytes,v.flops/v.device_ns*1e9],a=s.map(i),l=d("div"),r=o.length?Object.entries(o[0].
peaks):[],h=o.length?o[0].memory_gb_s*1e9:null,u=Math.max(0,...r.map(v=>v[1])),p=(v,k)=>10**k(Math.log10(v)),g=p(Math.min(
...a.map(v=>v[0])),Math.floor),f=p(Math.max(...a.map(v=>v[0]),h?3*u/h:1),Math.ceil),b=p(Math.min(...a.map(v=>v[1])),Math.
floor),M=p(Math.max(...a.map(v=>v[1]),u)*1.01,Math.ceil);return W(l,340,()=>({grid:{left:84,right:130,top:16,bottom:46},
tooltip:j(v=>v.data.row?R(`step ${v.data.row.step}: ${v.data.row.phase}`,[["FLOP per byte",z(v.data.value[0])],["achieve\
d",m(v.data.value[1],"flop/s")],["memory",m(v.data.row.bytes/v.data.row.device_ns*1e9,"bytes/s")],["known work",`${m(v.data.
row.known_ns/(v.data.row.events_ns||1),"share")} of GPU time`]]):null),xAxis:L({type:"log",min:g,max:f,name:"FLOP per by\
te",nameLocation:"middle",nameGap:28,axisLabel:{formatter:Jt}}),yAxis:L({type:"log",min:b,max:M,unit:"flop/s"}),series:[
...r.map(([v,k])=>({type:"line",symbol:"none",silent:!0,lineStyle:{color:y.value("muted"),width:1.5},data:[[Math.max(g,b/
h),Math.max(g*h,b)],[k/h,k],[f,k]].filter(C=>C[0]>=g),endLabel:{show:!0,formatter:`${v} ${rt(k,"flop/s")}`,color:y.value(
"muted"),fontSize:11.5}})),...e.map(({name:v,color:k})=>({name:v,type:"scatter",z:3,symbolSize:11,symbol:ht[Q(k)],itemStyle:{
color:y.color(k),opacity:.8,borderColor:y.value("card"),borderWidth:1},data:s.filter(C=>C.phase===v).map(C=>({value:i(C),
row:C}))}))]})),x("Roofline of steps","known FLOPs and bytes of a step over the time in which the device worked",F(e),l)}function Kn(n,t){if(!t.tables)return null;let e=t.tables.map(({title:s,name:o,columns:i,rows:a})=>O(s,"",i,a,{sort:"",name:o}));
return e.some(Boolean)?$("tables","Further tables",null,...e):null}var st=50,ae=12,Ft=16,Dt=22,Wt=7,Be=50;function qn({lane:n,depth:t,ts:e}){let s=[];for(let o=0;o<e.length;o++){let i=s[s.
length-1];i&&i.lane===n[o]&&i.depth===t[o]?i.end=o+1:s.push({lane:n[o],depth:t[o],begin:o,end:o+1})}return s}function Vn(n,t){
return[{type:"inside",filterMode:"none",zoomLock:!0,startValue:n,endValue:t,minValueSpan:Be},{type:"slider",filterMode:"\
none",top:2,height:22,left:4,right:4,startValue:n,endValue:t,brushSelect:!1,showDetail:!1,borderColor:"transparent",backgroundColor:y.
value("sunk"),fillerColor:`${y.color(0)}33`,dataBackground:{lineStyle:{opacity:0},areaStyle:{color:y.value("faint"),opacity:.6}},
selectedDataBackground:{lineStyle:{opacity:0},areaStyle:{color:y.color(0),opacity:.8}},handleStyle:{borderColor:y.color(
0),color:y.value("card")},moveHandleSize:0}]}function Xn(n){let t=0;return n.map(e=>(t+=e)-e)}function mt(n,t,e,s,o){for(;e<
s;){let i=e+s>>1;n[i]+t[i]<o?e=i+1:s=i}return e}var Co=400,Ao=600,St=class{constructor(t,e){this.tiles=t,this.changed=e,this.decoded=new Map,this.pending=new Set,this.rows=
new Map,this.first=[],this.size=0;for(let s=0;s<(t?.lane.length??0);s++){let o=`${t.lane[s]} ${t.depth[s]}`,i=this.rows.
get(o);i?i[1]=s+1:this.rows.set(o,[s,s+1]),this.first.push(this.size),this.size+=t.count[s]}}*within(t,e,s,o){let[i,a]=this.
rows.get(`${t} ${e}`)??[0,0];for(let l=i;l<a&&this.tiles.from[l]<=o;l++)this.tiles.to[l]>=s&&(yield l)}of(t,e,s){if(!this.
tiles)return null;let o=t.map(({lane:l,depth:r})=>[...this.within(l,r,e,s)]);if(o.reduce((l,r)=>l+r.length,0)>Co)return null;
let a=o.flat().filter(l=>!this.decoded.has(l)&&!this.pending.has(l));return a.length&&this.fetch(a),o.map(l=>l.every(r=>this.
decoded.has(r))?l.map(r=>this.use(r)):null)}use(t){let e=this.decoded.get(t);return this.decoded.delete(t),this.decoded.
set(t,e),e}async fetch(t){for(let s of t)this.pending.add(s);let e=await Promise.all(t.map(s=>this.decode(s)));t.forEach(
(s,o)=>{this.pending.delete(s),this.keep(s,e[o])}),this.changed()}keep(t,e){this.decoded.set(t,e);for(let s of this.decoded.
keys()){if(this.decoded.size<=Ao)break;this.decoded.delete(s)}}async decode(t){let e=this.tiles.count[t],s=await Nt(this.
tiles.data[t],this.tiles.fields,e),o=this.tiles.lane[t],i=this.tiles.depth[t];return Object.assign(s,{lane:o,depth:i,first:this.
first[t],count:e})}tileOf(t){let e=0,s=this.first.length;for(;s-e>1;){let o=e+s>>1;this.first[o]<=t?e=o:s=o}return e}placeOf(t){
let e=this.tileOf(t);return{lane:this.tiles.lane[e],depth:this.tiles.depth[e]}}async event(t){let e=this.tileOf(t);this.
decoded.has(e)||this.keep(e,await this.decode(e));let s=this.use(e),o={number:t,...this.placeOf(t)};for(let{name:i}of this.
tiles.fields)o[i]=s[i][t-s.first];return o}};var le=10,je={"host work":0,"GPU work":4,collective:2},Eo=1,Lo=24,re=class{constructor(t,e){this.path=t,this.timeline=e,
this.shown=!0,this.at=null,this.tiles=new St(t?.tiles??null,()=>e.redraw()),this.node=d("div",{class:"picked",id:"path-s\
aid","aria-live":"polite"}),t&&this.say(null)}get size(){return this.tiles.size}isWork(t){return this.path.work.includes(
t)}color(t){return je[this.path.kinds[t]]??Eo}*within(t,e){let s=[...this.tiles.within(0,0,t,e)];if(s.length>Lo){for(let i of s){
let a=this.path.tiles.from[i];yield{number:-1,ts:a,dur:this.path.tiles.to[i]-a,kind:this.path.main[i],event:-1}}return}let o=this.
tiles.of([{lane:0,depth:0}],t,e)?.[0]??[];for(let i of o)for(let a=mt(i.ts,i.dur,0,i.count,t);a<i.count&&i.ts[a]<=e;a++)
yield{number:i.first+a,ts:i.ts[a],dur:i.dur[a],kind:i.kind[a],event:i.event[a]}}async walk(t){if(!this.size||this.walking)
return;this.walking=!0;let{from:e,inspector:s}=this.timeline,o=s.event?s.event.ts:e,i=Math.max(0,Math.min(this.size-1,this.
at===null?await this.atTime(o):this.at+t)),a=await this.tiles.event(i);this.shown=!0,this.say(a),a.event>=0&&await s.select(
a.event),this.at=i,this.walking=!1;let l=a.event>=0?this.timeline.tiles.placeOf(a.event):{lane:0,depth:0};s.reveal({...a,
...l}),this.timeline.redraw(),this.node.dataset.element=i}async atTime(t){let{to:e,from:s}=this.path.tiles,o=Math.min(e.
findIndex(h=>h>=t)>>>0,s.length-1),{ts:i,dur:a,count:l,first:r}=await this.tiles.decode(o);return r+mt(i,a,0,l,t)}toggle(){
this.shown=!this.shown,this.timeline.redraw()}say(t){let{makespan_ns:e,shown_ns:s,kinds:o}=this.path,i=m(e,"ns"),a=_.format(
this.size),l=s===e?"":`, of which ${m(s,"ns")} are on this page`;this.node.textContent=t?`Critical path, element ${_.format(
t.number+1)} of ${a}: ${o[t.kind]}, ${m(t.ns,"ns")} of ${i}`:`Critical path: ${a} elements, ${i} by the replay${l}; n an\
d p walk along it, c hides it`,this.node.dataset.ns=t?.ns??""}};var Yn=12,Jn=80,To=90,ce=class{constructor(t,e){this.timeline=t,this.devices=e,this.details=new q(t.data.details,t.tiles,
t.data.lanes),this.event=null,this.arrows=[],this.asked=0;let s="Details of the selected event";this.node=d("div",{class:"\
details",role:"region",hidden:!0,tabindex:-1,"aria-label":s}),this.node.addEventListener("keydown",o=>{o.key==="Escape"&&
(this.timeline.canvas.focus(),o.preventDefault())})}async select(t,{reveal:e=!1,focus:s=!1}={}){let o=++this.asked;this.
timeline.critical.at=null;let[i,a]=await Promise.all([this.details.of(t),this.details.texts()]),l=q.first(i.sources,"ope\
rator"),r=l===null?null:await this.details.of(l);r&&(r.full=a.names[r.name]);let h=(await this.callersOf(r??i)).map(f=>a.
names[f.name]),u=await this.arrowsOf(i);if(o!==this.asked)return;this.event=i,this.arrows=u,this.panel(i,a,r,h),this.timeline.
picked.dataset.event=t,e&&this.reveal(i),this.timeline.redraw();let{kinds:p,lanes:g}=this.timeline.data;this.timeline.sayOf(
{...i,kind:p[i.kind],lane:g[i.lane]}),s&&this.node.focus(),this.node.dataset.arrows=JSON.stringify(u.map(f=>[f.kind,f.from.
number,f.to.number])),this.node.dataset.event=t}async callersOf(t){let e=[];for(let s=q.first(t.sources,"caller");s!==null;){
let o=await this.details.of(s);e.unshift(o),s=q.first(o.sources,"caller")}return e}clear(){this.asked++,this.event=null,
this.arrows=[],this.node.hidden=!0,delete this.node.dataset.event,this.timeline.redraw()}async arrowsOf(t){let e=[],s=(r,h,u)=>h>=
0&&u>=0&&e.length<Jn&&e.push([r,h,u]);for(let{kind:r,other:h}of t.sources)s(r,h,t.number);for(let{kind:r,other:h}of t.targets)
r!=="caller"&&s(r,t.number,h);let o=t.gpu?q.first(t.sources,"launch"):null;if(o!==null){let{sources:r}=await this.details.
of(o);for(let{kind:h,other:u}of r)h==="caller"&&s(h,u,o)}let i=t.targets.filter(({kind:r,other:h})=>r==="caller"&&h>=0);
for(let{other:r}of i.slice(0,Jn))for(let h of(await this.details.of(r)).targets)h.kind==="launch"&&(s("caller",t.number,
r),s("launch",r,h.other));let a=e.some(([r])=>r==="launch"),l=e.filter(([r])=>!(r==="operator"&&a));return Promise.all(l.
map(async([r,h,u])=>({kind:r,from:await this.timeline.tiles.event(h),to:await this.timeline.tiles.event(u)})))}panel(t,e,s,o){
let{lanes:i,kinds:a}=this.timeline.data,l=i[t.lane],r=`#event-${t.number}`,h=[S("ts","Start",t.ts,Lt(t.ts)),jt("dur",t.gpu?
"Duration":"Total time",t.dur),...t.gpu?kn(t,e,l,s,this.devices):vn(t,e),...o.length?[S("callers","Call stack",o,o.join(
" › "))]:[]],u=(p,g,f)=>d("button",{type:"button",title:g,onclick:f},p);this.node.hidden=!1,this.node.replaceChildren(
d("header",{},d("div",{},Tt(a[t.kind].color),d("b",{},a[t.kind].name),d("span",{},l.name)),d("h3",{},d("code",{"data-key":"\
name"},e.names[t.name])),d("div",{class:"tools"},u("Fill the view","z",()=>this.timeline.fill(t)),u("What runs meanwhile",
"m",()=>this.timeline.span.set(t.ts,t.ts+t.dur)),u("Close","Esc",()=>this.clear()),$e(t.gpu?"kernel":"call",e.names[t.name],
"In the table"),A.cameFrom?u("Back","Backspace: to the row or finding that led here",se):null,d("a",{href:r,title:"An ad\
dress that opens the page with this event"},r))),d("dl",{},h.map(({key:p,label:g,value:f,text:b})=>d("div",{class:b.length>
To?"long":null},d("dt",{},g),d("dd",{"data-key":p,"data-value":JSON.stringify(f),title:`${g}: ${f}`},$e(p,f)??b)))),...this.
relations(t.sources,0),...this.relations(t.targets,1))}relations(t,e){return Object.keys(Oe).map(s=>{let o=t.filter(i=>i.
kind===s).map(i=>i.other);return o.length?this.relation(s,e,o):null}).filter(Boolean)}relation(t,e,s){let o=s.filter(h=>h>=
0),i=d("ul"),a=s.length-o.length,l=d("button",{type:"button"},`Show all ${_.format(o.length)}`),r=async h=>{let{names:u}=this.
timeline.data,p=await Promise.all(o.slice(0,h).map(g=>this.timeline.tiles.event(g)));i.replaceChildren(...p.map(g=>d("li",
{},d("button",{type:"button","data-event":g.number,onclick:()=>this.select(g.number,{reveal:!0})},d("code",{},G(u[g.name],
80)),d("span",{},`${m(g.dur,"ns")} at ${m(g.ts,"ns")}`)))))};return l.addEventListener("click",()=>{l.remove(),r(o.length)}),
r(Yn),d("div",{class:"relation","data-relation":`${t} ${e?"out":"in"}`},d("h4",{},Oe[t][e],d("small",{},t)),i,o.length>Yn?
l:null,a?d("p",{class:"none"},`${_.format(a)} not on this page`):null)}reveal(t){let{timeline:e}=this,{ts:s,dur:o,lane:i,
depth:a}=t,l=e.to-e.from,r=l/(e.canvas.clientWidth||1e3);a>=(e.folded.get(i)??1/0)&&(e.folded.delete(i),e.refold()),o<4*
r||o>l?e.show(s-Math.max(200,4*o),s+Math.max(200,5*o)):(s<e.from||s+o>e.to)&&e.show(s+o/2-l/2,s+o/2+l/2);let h=e.canvas.
getBoundingClientRect().top+e.rowAt(t).y;(h<70||h>innerHeight-40)&&scrollBy({top:h-innerHeight/3,behavior:"instant"})}firstInView(){
let{timeline:t}=this;for(let[e,,,s,,,o]of t.visible()){let{event:i}=t.at([0,0,0,s,0,0,o]);if(i!==null&&e>=t.from)return i}
return null}follow(...t){if(!this.event)return;let{sources:e,targets:s}=this.event;for(let[o,i]of t){let a=q.first(i?s:e,
o);if(a!==null)return this.select(a,{reveal:!0})}}beside(t){let{tiles:e}=this.timeline,s=this.event?this.event.number+t:
this.firstInView();if(s===null||s<0||s>=e.size)return;if(!this.event)return this.select(s,{reveal:!0});let{lane:o,depth:i}=e.
placeOf(s);o===this.event.lane&&i===this.event.depth&&this.select(s,{reveal:!0})}act(t){return{ArrowLeft:()=>this.beside(
-1),ArrowRight:()=>this.beside(1),ArrowUp:()=>this.follow(["launch",0],["operator",0],["caller",0]),ArrowDown:()=>this.follow(
["launch",1],["caller",1],["operator",1]),o:()=>this.follow(["operator",0],["caller",0]),l:()=>this.follow(["launch",0],
["caller",1]),k:()=>this.follow(["operator",1],["launch",1]),b:()=>this.follow(["forward",1],["forward",0]),g:()=>this.follow(
["data",0],["event",0],["sync",0],["comm",0],["thread_handoff",0],["graph",0]),h:()=>this.follow(["data",1],["event",1],
["sync",1],["comm",1],["thread_handoff",1],["graph",1]),z:()=>this.event&&this.timeline.fill(this.event),m:()=>this.event&&
this.timeline.span.set(this.event.ts,this.event.ts+this.event.dur),Enter:()=>this.event?this.node.focus():this.beside(0),
Escape:()=>this.clear()}[t]}};function Re(){let n=Number(/^#event-(\d+)$/.exec(location.hash)?.[1]??NaN),{timeline:t}=A;
t?.inspector&&n<t.tiles.size&&t.inspector.select(n,{reveal:!0})}var Po=[["w s a d","zoom in and out, move left and right"],["← →","event before or after the selected one in its row\
; without one, the first in view"],["↑","to the launch call, the operator, the caller"],["↓","to what is called or l\
aunched"],["o","kernel → its operator"],["l","kernel → its launch call"],["k","operator or launch call → its first k\
ernel"],["b","forward ↔ backward operator"],["g h","what it waits for or reads from; what waits for it or reads it"],[
"n p","next and previous element of the critical path"],["c","show or hide the critical path"],[". ,","next and previous\
 event of the search, or of the row that led here"],["/ Backspace","to the search; back to the row or finding that led h\
ere"],["z","fill the view with the selected event"],["m","what runs during the selected event"],["[ ]","start and end of\
 a span at the selected event's start and end"],["Shift + drag","select a span: a table of what runs in it"],["Enter","t\
o the details; Esc back, and again to close them"],["?","this list"]];function Zn(){return d("dialog",{class:"keys","ari\
a-label":"Keys of the timeline"},d("h3",{},"Keys of the timeline"),d("dl",{},Po.map(([t,e])=>d("div",{},d("dt",{},d("kbd",
{},t)),d("dd",{},e)))),d("form",{method:"dialog"},d("button",{},"Close")))}var he=6,No={caller:9,operator:4,launch:4,forward:5,data:3,comm:2,sync:1,event:1},Io=1.5;function ts(n){return{id:"overl\
ay",type:"custom",clip:!0,silent:!0,z:5,progressive:0,encode:{x:[0,1],y:-1},tooltip:{show:!1},renderItem:(t,e)=>n.overlays[t.
dataIndex]?.draw(e)??null,data:Fe(n)}}function Fe(n){return n.overlays=[...jo(n),...Wo(n),...Ro(n),...Bo(n)],n.overlays.
map(({from:t,to:e})=>[t,e])}var pt=(n,t)=>n.coord([t,0])[0];function de(n,t,e,s,o,i=0){return{from:n,to:t,draw:l=>{let r=pt(
l,n)-i,h=Math.max(1+2*i,pt(l,t)-r+i);return{type:"rect",shape:{x:r,y:e-i,width:h,height:s+2*i,r:2*i},style:o}}}}function*Bo(n){
let t=n.inspector?.event;if(!t)return;let{y:e,tall:s}=n.rowAt(t),o={fill:"transparent",stroke:y.value("text"),lineWidth:2};
yield de(t.ts,t.ts+t.dur,e,s,o,1)}function*jo(n){let{from:t,to:e}=n.span??{};if(t==null)return;let s=y.value("accent");yield de(
t,e,st,n.height,{fill:s,opacity:.14,stroke:s,lineWidth:1})}function*Ro(n){for(let{kind:t,from:e,to:s}of n.inspector?.arrows??
[]){let o=n.rowAt(e),i=n.rowAt(s),a=t==="caller"||t==="operator",l=a?s.ts:e.ts+e.dur,r=No[t]??9;yield{from:Math.min(l,s.
ts),to:Math.max(l,s.ts),draw:h=>{let u=o.y+o.tall/2;return a?Fo(pt(h,s.ts),u,o.y<i.y?i.y:i.y+i.tall,y.color(r)):Do(pt(h,
l),u,pt(h,s.ts),i.y+i.tall/2,y.color(r))}}}}function Fo(n,t,e,s){let o=e>t?-he:he,i=he/2+1,a={type:"line",shape:{x1:n+2,
y1:t,x2:n+2,y2:e+o},style:{stroke:s,lineWidth:1.6}};return es(a,[[n+2,e+2],[n+2-i,e+o],[n+2+i,e+o]],s)}function Do(n,t,e,s,o){
let i=Math.max(18,Math.min(90,Math.abs(e-n)/3)),a=he,l={type:"bezierCurve",shape:{x1:n,y1:t,x2:e-a,y2:s,cpx1:n+i,cpy1:t,
cpx2:e-a-i,cpy2:s},style:{fill:"none",stroke:o,lineWidth:1.6,opacity:.9}},r=e-a-1,h=a/2+1;return es(l,[[e,s],[r,s-h],[r,
s+h]],o)}function es(n,t,e){return{type:"group",children:[n,{type:"polygon",shape:{points:t},style:{fill:e}}]}}function*Wo(n){
let{critical:t,from:e,to:s}=n;if(!t?.size||!t.shown)return;let o=(s-e)/Math.max(200,n.canvas.clientWidth||1e3),i=null,a=null;
for(let l of t.within(e,s)){let r=l.ts+l.dur,h=t.color(l.kind);if(i&&(i.color===h||r-i.from<o)?i.to=Math.max(i.to,r):(i&&
(yield Qn(i)),i={from:l.ts,to:r,color:h}),!t.isWork(l.kind))continue;if(l.event<0||l.dur<Io*o){a=null;continue}let u={...l,
...n.rowAt(n.tiles.placeOf(l.event)),color:h};yield zo(u,l.number===t.at),a&&(yield Go(a,u)),a=u}i&&(yield Qn(i))}function Qn({
from:n,to:t,color:e}){return de(n,t,st+1,le-4,{fill:K(e)})}function zo({ts:n,dur:t,y:e,tall:s},o){let i=o?5:3;return de(
n,n+t,e+s-i,i,{fill:y.value("path")})}function Go(n,t){let e=n.ts+n.dur;return{from:Math.min(e,t.ts),to:Math.max(e,t.ts),
draw:o=>({type:"line",shape:{x1:pt(o,e),y1:n.y+n.tall-1,x2:pt(o,t.ts),y2:t.y+t.tall-1},style:{stroke:y.value("path"),lineWidth:1.5,
lineDash:[3,2]}})}}var ns=60,ue=class{constructor(t){this.timeline=t,this.input=d("input",{type:"search",id:"search",placeholder:"Search ca\
lls and kernels…","aria-label":"Search the timeline",title:"Enter, Shift + Enter: next, previous call; ↓ ↑: next, prev\
ious name"}),this.said=d("span",{class:"said",id:"search-said",role:"status"}),this.list=d("div",{class:"found",hidden:!0}),
this.node=d("div",{class:"searching"},this.input,this.list),this.rows=[],this.at=-1,this.input.addEventListener("input",
()=>this.find(this.input.value)),this.input.addEventListener("keydown",e=>this.key(e)),document.addEventListener("click",
e=>{this.node.contains(e.target)||(this.list.hidden=!0)})}key(t){t.key==="Escape"?(this.input.value="",this.find("")):t.
key==="Enter"?(t.preventDefault(),this.step(t.shiftKey?-1:1)):t.key!=="Home"&&t.key!=="End"&&gt(t,this.at,this.rows.length,
e=>this.choose(e))}find(t){let{timeline:e}=this,{names:s,found:o,places:i,kinds:a}=e.data,l=t.trim().toLowerCase();e.matches=
l?new Set(s.flatMap((u,p)=>ee(u,l)?[p]:[])):null,e.hits=null;let r=l?o.filter(u=>e.matches.has(u.name)):[],h=l?i.filter(
u=>u.text.toLowerCase().includes(l)):[];this.rows=[...r.slice(0,ns),...h.slice(0,ns)],this.at=-1,this.list.hidden=!this.
rows.length,this.list.replaceChildren(...this.rows.map((u,p)=>d("button",{type:"button",tabindex:-1,"data-place":u.text,
onclick:()=>this.choose(p,!0)},u.text?Y(u.what):Tt(a[u.kind].color),d("code",{},G(u.text??s[u.name],120)),d("span",{},`${_.
format(u.count)} ×`),d("span",{},m(u.total,"ns"))))),this.said.textContent=l?r.length?`${_.format(r.reduce((u,p)=>u+p.count,
0))} calls of ${_.format(r.length)} names`:h.length?`${_.format(h.length)} lines and modules`:"nothing found":"",e.redraw()}choose(t,e=!1){
let{timeline:s}=this,o=this.rows[t];this.at=t,[...this.list.children].forEach((a,l)=>a.classList.toggle("at",l===t)),this.
list.children[t].scrollIntoView({block:"nearest"}),this.list.hidden=e,s.hits=null;let i=Math.max(o.dur*3,200);s.show(o.ts-
i,o.ts+o.dur+i),!o.text&&(s.matches=new Set([o.name]),s.say(o.name,[s.data.kinds[o.kind].name,`${_.format(o.count)} call\
s, ${m(o.total,"ns")}`,`the longest ${m(o.dur,"ns")} at ${m(o.ts,"ns")}`]),s.redraw())}async step(t){let{timeline:e,rows:s}=this;
if(s.length){if(!e.matches?.size||s[this.at]?.text||!e.inspector)return this.choose((Math.max(this.at,t<0?0:-1)+t+s.length)%
s.length);this.list.hidden=!0,e.hits??=new kt(e,(await It(e,{codes:e.matches})).map(o=>o.number)),await e.hits.step(t),this.
said.textContent=e.hits.text}}};var Ho="Of the span's length; over 100 % where several run at a time",me=class{constructor(t){this.timeline=t,this.from=
this.to=null,this.asked=0;let e="What runs in the selected span";this.node=d("div",{class:"in-span",role:"region",hidden:!0,
"aria-label":e});let s=t.canvas;for(let o of["pointerdown","mousedown"])s.addEventListener(o,i=>this.press(i,o),!0)}press(t,e){
if(!t.shiftKey||t.button!==0)return;if(t.stopPropagation(),e!=="pointerdown")return t.preventDefault();let s=this.timeline.
timeAt(t.clientX);Ht(o=>this.preview(s,this.timeline.timeAt(o.clientX)),o=>this.set(s,this.timeline.timeAt(o.clientX)))}preview(t,e){
let{span:s}=this.timeline.data;this.from=Math.round(Math.max(0,Math.min(t,e))),this.to=Math.round(Math.min(s,Math.max(t,
e))),this.timeline.redraw()}clear(){this.asked++,this.from=this.to=null,this.node.hidden=!0,this.timeline.redraw()}setEnd(t,e){
let{from:s,to:o}=this.timeline;t==="from"?this.set(e,this.to>e?this.to:o):this.set(this.from!==null&&this.from<e?this.from:
s,e)}async set(t,e){if(this.preview(t,e),this.to<=this.from)return this.clear();let s=++this.asked,o=await this.totals(this.
from,this.to,()=>s===this.asked);o&&this.show(o)}async totals(t,e,s){let{tiles:o,rows:i}=this.timeline,a=new Map,l=new Map,
r=this.timeline.data.lanes,h=(u,p,g,f)=>{let b=u.get(p);b?(b.count+=1,b.total+=f):u.set(p,{...g,count:1,total:f})};for(let{
lane:u,depth:p}of i)for(let g of o.within(u,p,t,e)){let{ts:f,dur:b,name:M,kind:v,op:k,count:C}=o.decoded.get(g)??await o.
decode(g);if(!s())return null;for(let P=mt(f,b,0,C,t);P<C&&f[P]<e;P++){let I=Math.min(e,f[P]+b[P])-Math.max(t,f[P]);I<0||
I===0&&b[P]>0||(h(a,v[P]*2**32+M[P],{name:M[P],kind:v[P],gpu:r[u].gpu},I),r[u].gpu&&h(l,k[P],{name:k[P]},I))}}return{byName:[
...a.values()],byOp:[...l.values()]}}show({byName:t,byOp:e}){let{names:s,kinds:o}=this.timeline.data,i=this.to-this.from,
a=h=>h.map(({name:u,kind:p,count:g,total:f})=>({name:u>=0?s[u]:"unknown",kind:p===void 0?null:o[p].name,count:g,total:f,
share:f/i})),l=[c.code("name","Name"),c.text("kind","Kind"),c.count("count","Count"),c.ns("total","Time",{hint:"Within t\
he span, callees included"}),c.share("share","Share",{hint:Ho})],r=(h,u,p)=>p.length?[d("h4",{},h),H(l,a(p),{sort:"total",
name:`span-${u}`})]:[];this.node.hidden=!1,this.node.replaceChildren(d("header",{},d("h3",{},`${m(i,"ns")} selected`),d(
"span",{class:"said"},`${Lt(this.from)} to ${Lt(this.to)}`),d("button",{type:"button",onclick:()=>this.clear()},"Clear")),
...r("Device work by operator","op",e),...r("Device work by name","gpu",t.filter(h=>h.gpu)),...r("Host calls","cpu",t.filter(
h=>!h.gpu))),this.node.dataset.span=`${this.from} ${this.to}`}};var pe=3,ss=24,Uo=860,De=1.5,Ko=6,qo=34,fe=class{constructor(t,e={}){this.data=t,this.rows=qn(t),this.names=new Set(t.names),
this.tiles=new St(t.tiles,()=>this.redraw()),this.numbers=Xn(t.count),this.sources=[t],this.from=0,this.to=t.span,this.matches=
null,this.hits=null,this.step=null,this.folded=new Map;let s=t.lanes.reduce((i,a)=>i+a.rows*(a.gpu?Dt:Ft)+Wt,0),o=t.lanes.
findIndex(i=>!i.gpu);s>Uo&&t.lanes.forEach((i,a)=>{!i.gpu&&i.rows>(a===o?ss:pe)&&this.folded.set(a,a===o?ss:pe)}),this.overlays=
[],this.build(),this.critical=new re(t.path,this),t.tiles&&(this.inspector=new ce(this,e),this.span=new me(this),this.node.
append(this.inspector.node,this.span.node)),this.critical.size&&this.node.append(this.critical.node),this.place()}build(){
this.lanes=d("div",{class:"lanes"}),this.canvas=d("div",{tabindex:0,role:"application","aria-label":"Timeline; press ? f\
or its keys"}),this.help=Zn(),this.picked=d("div",{class:"picked"},"Click a call for its details."),this.search=new ue(this);
let t=(s,o,i,a)=>d("button",{type:"button",id:s,title:i,onclick:a},o),e=d("div",{class:"tools"},this.search.node,this.search.
said,d("span",{class:"said push"},"drag to move · Ctrl + wheel to zoom · Shift + drag to select a span"),t("keys","?",
"Keys (?)",()=>this.help.showModal()),t("zoom-in","+","Zoom in (w)",()=>this.zoom(.4)),t("zoom-out","−","Zoom out (s)",
()=>this.zoom(2.5)),t("zoom-all","Fit","All of it: the whole trace, or the step chosen",()=>this.fit()));this.node=d("di\
v",{},e,...["GPU","CPU"].map(s=>F(this.data.kinds.filter(o=>o.gpu===(s==="GPU")),{side:s})),d("div",{class:"timeline"},this.
lanes,d("div",{class:"frame"},this.canvas)),this.picked,this.help),this.canvas.addEventListener("keydown",s=>this.key(s)),
this.canvas.addEventListener("wheel",s=>this.wheel(s),{passive:!1})}place(){let t=this.critical.size?le:0,e=t;this.tops=
this.data.lanes.map((s,o)=>{let i=e,a=this.folded.get(o)??s.rows;return e+=a*(s.gpu?Dt:Ft)+Wt,i}),this.height=e,this.lanes.
replaceChildren(...this.data.lanes.map((s,o)=>{let i=o+1<this.tops.length?this.tops[o+1]:e,a=d("div",{class:"lane",title:`${s.
name}
${s.note}`},d("b",{},s.name),i-this.tops[o]>34?d("i",{},s.note):null);return a.style.height=`${i-this.tops[o]}px`,!s.gpu&&
s.rows>pe&&(a.style.cursor="pointer",a.addEventListener("click",()=>{this.folded.delete(o)||this.folded.set(o,pe),this.refold()})),
a})),this.lanes.style.paddingTop=`${st+t}px`}refold(){this.place(),this.canvas.style.height=`${st+this.height+ae}px`,this.
chart.draw()}mount(){this.chart=W(this.canvas,st+this.height+ae,()=>this.options(),t=>this.wire(t))}options(){return this.
font=y.value("sans"),{grid:{left:0,right:0,top:st,bottom:ae,outerBoundsMode:"none"},tooltip:j(t=>t.seriesId==="calls"?this.
tip(this.at(t.data)):null,{trigger:"item"}),xAxis:L({type:"value",min:0,max:this.data.span,position:"top",splitNumber:7,
axisLine:{show:!1},axisLabel:{formatter:t=>this.tick(t),hideOverlap:!0,showMinLabel:!1,showMaxLabel:!1}}),yAxis:[{type:"\
value",min:0,max:this.height||1,inverse:!0,show:!1},{type:"value",min:0,max:1,show:!1}],dataZoom:Vn(this.from,this.to),series:[
{id:"load",type:"line",yAxisIndex:1,data:this.data.load,symbol:"none",lineStyle:{opacity:0},silent:!0,tooltip:{show:!1}},
{id:"calls",type:"custom",clip:!0,encode:{x:[0,1],y:-1},progressive:0,renderItem:(t,e)=>this.draw(e),data:this.visible()},
ts(this)]}}wire(t){t.on("datazoom",()=>{[this.from,this.to]=t.getModel().getComponent("xAxis").axis.scale.getExtent(),this.
node.dataset.view=`${this.from} ${this.to}`,cancelAnimationFrame(this.pending),this.pending=requestAnimationFrame(()=>this.
redraw())}),t.on("click",e=>{e.seriesId==="calls"&&this.pick(this.at(e.data))}),t.on("dblclick",e=>{e.seriesId==="calls"&&
this.fill(this.at(e.data))})}redraw(){this.chart.instance?.setOption({series:[{id:"calls",data:this.visible()},{id:"over\
lay",data:Fe(this)}]})}rowAt({lane:t,depth:e}){let s=this.data.lanes[t].gpu?Dt:Ft,o=Math.min(e,(this.folded.get(t)??1/0)-
1);return{y:st+this.tops[t]+o*s+Wt/2,tall:s-1}}timeAt(t){let e=this.canvas.getBoundingClientRect().left;return this.from+
(this.to-this.from)*(t-e)/this.canvas.clientWidth}at([,,,t,,,e]){let s=this.sources[e],o=e===0;return{name:s.name[t],kind:this.
data.kinds[s.kind[t]],ts:s.ts[t],dur:s.dur[t],op:s.op[t],lane:this.data.lanes[o?s.lane[t]:s.lane],count:o?s.count[t]:1,event:this.
data.tiles&&(!o||s.count[t]===1)?o?this.numbers[t]:s.first+t:null,busy:o?s.busy[t]:s.dur[t]}}visible(){let t=(this.to-this.
from)/Math.max(200,this.canvas.clientWidth||1e3),e=this.rows.filter(({lane:l,depth:r})=>r<(this.folded.get(l)??1/0)),s=De*
t<this.data.resolution,o=s?this.tiles.of(e,this.from,this.to):null,i=[];this.sources=[this.data];let a=!s||!!o?.every(l=>l!==
null);return e.forEach(({lane:l,depth:r,begin:h,end:u},p)=>{let g=this.data.lanes[l].gpu?Dt:Ft,f=this.tops[l]+r*g+Wt/2;if(!o?.[p])
return this.gather(i,0,h,u,t,f,g-1);for(let b of o[p])this.sources.push(b),this.gather(i,this.sources.length-1,0,b.count,
t,f,g-1)}),this.node.dataset.complete=a?"yes":"no",i}gather(t,e,s,o,i,a,l){let r=this.sources[e],{ts:h,dur:u,name:p}=r,g=e?
u:r.busy,f=De*i;for(let b=mt(h,u,s,o,this.from);b<o&&h[b]<=this.to;b++){let M=h[b],v=this.matches?.has(p[b]),k=M+u[b],C=b,
P=g[b];for(;u[b]<f&&b+1<o&&u[b+1]<f&&h[b+1]-k<f&&h[b+1]+u[b+1]-M<Ko*i&&this.matches?.has(p[b+1])===v;)b++,k=h[b]+u[b],P+=
g[b],u[b]>u[C]&&(C=b);t.push([M,k,a,C,l,Math.min(1,P/Math.max(1,k-M)),e])}}draw(t){let e=t.coord([t.value(0),0]),s=t.coord(
[t.value(1),0]),o=t.value(3),i=t.value(4),a=st+t.value(2),l=t.value(6),r=this.sources[l];if(!r||!(o<r.name.length))return null;
let h=Math.max(0,e[0]),u=Math.min(t.getWidth(),s[0]),p=Math.max(De*.8,u-h-(u-h>4?1:0)),{names:g,kinds:f}=this.data,b=l?1:
r.count[o],M=this.matches&&!this.matches.has(r.name[o]),{color:v}=f[r.kind[o]],k=p<qo||M?"":b>1?`${_.format(b)} calls`:Z(
g[r.name[o]]);return{type:"rect",shape:{x:h,y:a,width:p,height:i},style:{fill:K(v),opacity:M?.13:.3+.7*t.value(5)},textConfig:{
position:"insideLeft",distance:4},textContent:{type:"text",style:{text:k,fill:it(y.color(v)),fontSize:i>18?12:11,fontFamily:this.
font,width:Math.max(1,p-8),overflow:"truncate",ellipsis:""}}}}tip({name:t,kind:e,ts:s,dur:o,count:i,busy:a,op:l,lane:r}){
let{names:h}=this.data,u=i>1;return R(G(h[t],180),[u?["calls merged here, the longest named",_.format(i)]:null,["kind",e.
name],["on",r.name],l>=0?["launched by",G(h[l],60)]:null,["start",m(s,"ns")],[u?"from first to last":"duration",m(o,"ns")],
u?["busy",m(a,"ns")]:null].filter(Boolean))}pick(t){this.sayOf(t),t.event===null?this.inspector?.clear():this.inspector.
select(t.event)}sayOf({name:t,kind:e,ts:s,dur:o,count:i=1,op:a,lane:l}){Object.assign(this.picked.dataset,{ts:s,dur:o,count:i}),
this.say(t,[e.name,l.name,`start ${m(s,"ns")}`,`duration ${m(o,"ns")}`,i>1?`${_.format(i)} calls merged; zoom in for one`:
null,a>=0?`launched by ${this.data.names[a]}`:null])}say(t,e){this.picked.replaceChildren(d("code",{},this.data.names[t]),
" — ",e.filter(Boolean).join(" · "))}fill({ts:t,dur:e}){let s=Math.max(20,e*.06);this.show(t-s,t+e+s)}show(t,e){let s=this.
data.span,o=Math.min(s,Math.max(e-t,Be)),i=Math.max(0,Math.min(t,s-o));this.chart.instance.dispatchAction({type:"dataZoo\
m",startValue:i,endValue:Math.min(s,i+o)})}showStep(t){this.step=t,this.from=t.from,this.to=t.to,this.node.dataset.view=
`${this.from} ${this.to}`}fit(){let{from:t,to:e}=this.step??{from:0,to:this.data.span};this.show(t,e)}zoom(t,e=(this.from+
this.to)/2){this.show(e-t*(e-this.from),e+t*(this.to-e))}wheel(t){!t.ctrlKey&&!t.metaKey||(t.preventDefault(),this.zoom(
Math.exp(Math.max(-120,Math.min(120,t.deltaY))/350),this.timeAt(t.clientX)))}key(t){let e=(this.to-this.from)*.25,o={w:()=>this.
zoom(.5),s:()=>this.zoom(2),a:()=>this.show(this.from-e,this.to-e),d:()=>this.show(this.from+e,this.to+e),n:()=>this.critical.
walk(1),p:()=>this.critical.walk(-1),c:()=>this.critical.toggle(),".":()=>this.hits?.step(1),",":()=>this.hits?.step(-1),
"/":()=>this.search.input.focus(),Backspace:()=>se(),"[":()=>this.inspector?.event&&this.span.setEnd("from",this.inspector.
event.ts),"]":()=>this.inspector?.event&&this.span.setEnd("to",this.inspector.event.ts+this.inspector.event.dur),"?":()=>this.
help.showModal()}[t.key]??this.inspector?.act(t.key);t.ctrlKey||t.metaKey||t.altKey||!o||(o(),t.preventDefault())}tick(t){
let[e,s]=Yt("ns",Math.max(this.to,1)/2),o=(this.to-this.from)/7/s;return`${(t/s).toFixed(Math.max(0,Math.min(6,1-Math.floor(
Math.log10(o)))))} ${e}`}};function ge(n){let t=n.analysis.device_use,e=o=>t.reduce((i,a)=>i+a[o],0),s=e("communication_ns")-e("exposed_communicati\
on_ns");return{window:e("window_ns"),busy:e("busy_ns"),span:e("gpu_span_ns"),hidden:s,parts:[{name:"Computing",color:4,ns:e(
"compute_ns")-s},{name:"Computing and communicating",color:3,ns:s},{name:"Exposed communication",color:2,ns:e("exposed_c\
ommunication_ns")},{name:"Copies alone",color:1,ns:e("busy_ns")-e("compute_ns")-e("exposed_communication_ns")},{name:"Id\
le",color:"line",ns:e("idle_ns")}]}}function Vo(n){let t=0,e=0,s=!1;for(let i of n.analysis.kernels)i.flops===null||!i.flops_per_second||
(t+=i.flops,i.flops_share!==null&&(s=!0,e+=i.flops/i.flops_per_second*1e9*i.flops_share));let o=ge(n).window;return[t&&o?
t/n.span_ns*1e9:null,s&&o?e/o:null]}function os(n,t){let{analysis:e}=t,s=ge(t),[o,i]=Vo(t),a=e.iterations,l=I=>s.parts.find(
V=>V.name===I).ns/(s.window||1),r=t.attributed_ns/(t.tree.total_ns||1),h=e.iteration_list.length,u=`${h} iteration${h>1?
"s":""} of ${m(a.mean_latency_ns,"ns")}`,p=l("Computing")+l("Computing and communicating"),g=s.parts[2].ns,f=`of ${m(s.window,
"ns")}`,b=`${m(s.busy/(s.span||1),"share")} from the first GPU event to the last`,M=i===null?"peak of the device unknown":
`${m(i,"share")} of the peak`,v=t.gpu_events+t.host_calls+t.runtime_calls,k=t.coverage,C=[D("Length",m(t.span_ns,"ns"),h?
u:"no iterations marked"),s.window?D("GPU busy",m(s.busy/s.window,"share"),`${m(s.busy,"ns")} ${f}; ${b}`):null,s.window?
D("GPU computing",m(p,"share"),"without communication"):null,e.device_use.some(I=>I.communication_ns)?D("Exposed comm.",
m(l("Exposed communication"),"share"),`${m(g,"ns")} of ${m(s.hidden+g,"ns")}`):null,o!==null?D("Achieved",m(o,"flop/s"),
M):null,a.samples_per_second?D("Throughput",`${z(a.samples_per_second)} samples/s`,`batch of ${a.batch_size}`):null,e.serving_phases.
length&&e.serving_phases.at(-1).tokens_per_second?D("Tokens",`${z(e.serving_phases.at(-1).tokens_per_second)} /s`,Xo(e.serving_phases)):
null,D("Events",m(v,"count"),`${m(t.gpu_events,"count")} on the GPU`),k?D("Linked",m(k.linked/(k.total||1),"share"),`of ${m(
k.total,"count")} operators`):t.gpu_events?D("Attributed",m(r,"share"),"of GPU time to operators"):null],P=s.window?x("D\
evice time",f+(e.device_use.length>1?" on all devices":""),nt([{name:"",parts:s.parts,whole:s.window}])):null;return $("\
overview","Overview",null,Yo(n),d("div",{class:"tiles"},C),P,et([6,6],x("Trace",null,Jo(t)),x("Links",null,Zo(t,r))))}function Xo(n){
return`steps: ${n.filter(e=>e.phase!=="all").map(e=>`${e.steps} ${e.phase}`).join(", ")}`}function Yo(n){let t=n.ranks.length>
1,e=[...n.warnings,...n.ranks.flatMap(s=>s.analysis.damage.map(o=>t?`Rank ${s.label}: ${o}`:o))];return ct("warnings",e)}
function Jo(n){let{analysis:t}=n,e=[["File",n.file]];n.rank!==null&&e.push(["Rank",String(n.rank)]);for(let[s,o]of Object.
entries(t.devices)){let i=Object.entries(o.peaks).map(([a,l])=>`${a} ${m(l,"flop/s")}`);e.push([`Device ${s}`,[o.name??"\
not named in the trace",o.known_as&&o.known_as!==o.name?`(${o.known_as})`:"",o.memory_gb_s?`· at best ${[...i,m(o.memory_gb_s*
1e9,"bytes/s")].join(", ")}`:"· peaks unknown"].filter(Boolean).join(" ")])}return e.push(["Streams",String(t.streams.length)],
["Operators",m(n.host_calls,"count")],["Runtime calls",n.runtime_calls?`${m(n.runtime_calls,"count")}, ${m(t.host.runtime_ns,
"ns")}`:"0"]),t.host.loading_ns&&e.push(["Data loading",m(t.host.loading_ns,"ns")]),ft(e)}function Zo(n,t){let e=n.coverage,
s=[...e?.notes??[],...n.analysis.notes],o=e?[["Operators",`${m(e.linked,"count")} of ${m(e.total,"count")} linked (${m(e.
linked/(e.total||1),"share")}) by ${e.method}`],["Certain",m(e.certain,"count")],["Equivalent",`${m(e.equivalent,"count")}\
; the structure fits, but another run or iteration could be meant`],["GPU time",`${m(e.attached_ns/(e.gpu_ns||1),"share")}\
 of ${m(e.gpu_ns,"ns")} attached to operators`]]:[["Kind","Kineto trace alone, not linked with an Execution Trace"],n.gpu_events?
["GPU time",`${m(t,"share")} launched by operators of the trace`]:null].filter(Boolean);return[ft(o),ct("notes",s)]}function is(n,t){
if(!t.timeline.ts.length)return null;let e=A.timeline=new fe(t.timeline,t.analysis.devices);e.mount();let s=m(t.timeline.
resolution,"ns"),o=t.timeline.resolution?t.timeline.tiles?` Calls shorter than ${s} are drawn together until the view is\
 close enough.`:` Calls shorter than ${s} are merged with their neighbours.`:"",i=t.timeline.hidden?` ${t.timeline.hidden}\
 lanes with the least time are left out.`:"";return $("timeline","Timeline",`${t.gpu_events?"Streams on top, CPU threads\
 below with their calls nested; pale where short calls leave gaps.":"CPU threads with their calls nested; pale where sho\
rt calls leave gaps."}${o}${i}`,x(null,null,e.node))}var Qo="Communication time beyond that of the rank with the least: time spent waiting for others";function We(n){return n.
rank!==null&&n.label===String(n.rank)?`rank ${n.rank}`:n.label}function as(n){if(n.ranks.length<2)return null;let t=n.ranks.
map(h=>({rank:h,use:ge(h)})),e=t.map(({rank:h,use:u},p)=>({place:p,name:We(h),file:h.file,span:h.span_ns,latency:h.analysis.
iterations.mean_latency_ns,busy:u.window?u.busy/u.window:null,computing:u.window?u.parts[0].ns+u.hidden:null,communication:u.
hidden+u.parts[2].ns,exposed:u.parts[2].ns,idle:u.parts[4].ns,waiting:null,events:h.gpu_events,linked:h.coverage?h.coverage.
linked/(h.coverage.total||1):null})),s=Math.min(...e.map(h=>h.communication));for(let h of e)h.waiting=h.communication-s;
let o=h=>{let u=e.map(p=>p[h]).filter(p=>p!==null);return u.length?Math.max(...u)-Math.min(...u):null},i=e.reduce((h,u)=>u.
communication<h.communication?u:h),a=e.some(h=>h.communication>0),l=e.reduce((h,u)=>h+u.events,0),r=Math.max(...e.map(h=>h.
span));return $("job","Ranks","The ranks of the job side by side. A click on a bar shows that rank in the sections below\
.",d("div",{class:"tiles"},D("Ranks",String(e.length),`${m(l,"count")} GPU events`),D("Longest trace",m(r,"ns"),`${m(o("\
span"),"ns")} longer than the shortest`),D("Spread of computing",m(o("computing"),"ns"),"between the ranks that compute \
most and least"),a?D("Last to arrive",i.name,"shortest in communication: the others wait for it"):null),x("Device time b\
y rank",null,nt(t.map(({rank:h,use:u},p)=>({name:e[p].name,parts:u.parts,whole:u.window})),{click:at})),O("Numbers by ra\
nk",null,[c.text("name","Rank"),c.text("file","File"),c.ns("span","Length"),c.ns("latency","Mean iteration"),c.share("bu\
sy","GPU busy"),c.ns("computing","Computing"),c.ns("communication","Communicating"),c.ns("exposed","Exposed",{hint:"Comm\
unication with no computing kernel beside it"}),c.ns("waiting","Beyond the least",{hint:Qo}),c.ns("idle","Idle"),c.count(
"events","GPU events"),c.share("linked","Linked")],e,{sort:"name",name:"ranks",click:h=>at(h.place)}))}var ti="The operators' FLOPs over the time of all their kernels, not of this one alone",ei="Against the device's memory \
bandwidth; none where the data may have been in its cache",rs=[c.count("count","Count"),c.ns("total_ns","Total"),c.ns("m\
ean_ns","Mean"),c.rate("flops_per_second","Rate")];function ls(n,t){let e=t.analysis.kernels.map((i,a)=>({...i,kind:t.kernel_kinds[a],
kindName:n.gpu_kinds[t.kernel_kinds[a]].name}));if(!e.length)return null;let s=e.filter(i=>i.intensity&&i.flops_per_second),
o=Object.keys(t.analysis.devices).length>1?c.count("device","Device"):null;return $("kernels","Kernels and roofline","Ev\
ery kernel against what the device can do at best: below the slope it waits for memory, below the roof for arithmetic. C\
ircles are larger the more time they take.",s.length?oi(n,t,s):x("Roofline",null,ot("No kernel's FLOPs and bytes are kno\
wn: the trace has no shapes (record_shapes), or only operators that move data.")),O("Kernels",U(t,"kernels"),[c.code("ke\
rnel","Kernel"),c.text("kindName","Kind"),c.text("dtype","Type"),o,...rs,c.rate("operator_flops_per_second","of operator",
{hint:ti}),c.share("flops_share","of peak",{hint:"FLOP/s against the device's peak for the element type"}),c.bandwidth("\
bytes_per_second","Memory",{hint:"Bytes of inputs and outputs per second, at least"}),c.bandwidth("most_bytes_per_second",
"at most",{hint:"The same where bytes are known; of experts at most"}),c.share("bytes_share","of bandwidth",{hint:ei}),c.
other("intensity","FLOP/byte"),c.text("bound","Bound by"),c.code("ops","Operators")],e,{sort:"total_ns",name:"kernels",jump:ni}),
O("Matrix products",U(t,"gemms")??"batch × (m, k) · (k, n), over the time of all kernels of the operator",[c.code("op",
"Operator"),c.text("dtype","Type"),o,...["batch","m","n","k"].map(i=>c.count(i,i)),...rs,c.share("flops_share","of peak",
{hint:"The efficiency: FLOP/s against the device's peak"}),c.bandwidth("bytes_per_second","Memory",{hint:"Inputs and out\
puts once"}),c.share("bytes_share","of bandwidth"),c.text("bound","Bound by"),c.code("kernels","Kernels")],t.analysis.gemms,
{sort:"total_ns",name:"gemms",jump:si}))}var ni=({device:n,kernel:t,dtype:e})=>({gpu:!0,device:n,name:t,has:(s,o,i)=>(i.
dtypes[s.dtype[o]]??"")===e,orElse:{gpu:!0,device:n,name:t}}),si=({device:n,op:t,batch:e,m:s,n:o,k:i,count:a,flops:l,kernels:r})=>({
gpu:!0,device:n,has:(h,u)=>h.flops[u]===l/a||h.flops[u]===2*e*s*o*i,fits:async(h,u)=>r.includes(u.names[h.name])&&u.names[(await oe(
h))?.name]===t});function oi(n,t,e){let s=t.analysis.devices[e[0].device],o=d("div"),i=n.gpu_kinds,a=e.filter(B=>B.device===
e[0].device),r=[...new Set(a.map(B=>B.dtype))].map(B=>[B,s.peaks[B]]).filter(B=>B[1]),h=s.memory_gb_s?s.memory_gb_s*1e9:
null,u=Math.max(0,...r.map(B=>B[1])),p=a.map(B=>B.intensity),g=a.map(B=>B.flops_per_second),f=10**Math.floor(Math.log10(
Math.min(...p))),b=10**Math.ceil(Math.log10(Math.max(...p,h?3*u/h:1))),M=10**Math.floor(Math.log10(Math.min(...g))),v=10**
Math.ceil(Math.log10(Math.max(...g,u)*1.01)),k=Math.max(...a.map(B=>B.total_ns)),C=ne(a,i),P=()=>({color:y.value("muted"),
width:1.5}),I=()=>({type:"line",symbol:"none",silent:!0,lineStyle:P()});W(o,400,()=>({grid:{left:84,right:130,top:16,bottom:46},
tooltip:j(B=>{let w=B.data.row;return w?R(G(w.kernel,180),[["operators",G(w.ops,60)],["element type",w.dtype||"–"],["F\
LOP per byte",z(w.intensity)],["achieved",m(w.flops_per_second,"flop/s")],["of the whole operator",m(w.operator_flops_per_second,
"flop/s")],["of peak",m(w.flops_share,"share")],["memory",`${m(w.bytes_per_second,"bytes/s")} (${m(w.bytes_share,"share")}\
)`],["calls",m(w.count,"count")],["total time",m(w.total_ns,"ns")],["bound by",w.bound||"–"]]):null}),xAxis:L({type:"l\
og",min:f,max:b,name:"FLOP per byte",nameLocation:"middle",nameGap:28,axisLabel:{formatter:Jt}}),yAxis:L({type:"log",min:M,
max:v,unit:"flop/s"}),series:[...r.map(([B,w])=>({...I(),tooltip:{show:!1},z:1,data:[...h?[[Math.max(f,M/h),Math.max(f*h,
M)],[w/h,w]]:[[f,w]],[b,w]].filter(E=>E[0]>=f),endLabel:{show:!0,formatter:`${B} ${rt(w,"flop/s")}`,color:P().color,fontSize:11.5}})),
...r.length||!h?[]:[{...I(),data:[[f,f*h],[b,b*h]]}],...C.map(({name:B,color:w})=>({name:B,type:"scatter",z:3,symbol:ht[Q(
w)],itemStyle:{color:y.color(w),opacity:.78,borderColor:y.value("card"),borderWidth:1},symbolSize:(E,N)=>7+26*Math.sqrt(
N.data.row.total_ns/k),data:a.filter(E=>E.kindName===B).map(E=>({value:[E.intensity,E.flops_per_second],row:E}))}))]}));
let V=`${s.known_as??s.name??"device"}${h?`, memory ${m(h,"bytes/s")}`:", peaks unknown"} · ${a.length} of ${t.analysis.
kernels.length} kernels, those whose FLOPs and bytes are known`;return x("Roofline",V,F(C),o)}var ii=8;function zt(n,t,e,{mark:s=null}={}){let o=d("div"),i=t.slice(0,ii);W(o,230,()=>({grid:{left:74,right:24,top:18,
bottom:26},tooltip:j(l=>R(m(l[0].value[0],"ns"),l.map(r=>[r.seriesName,m(r.value[1],e)])),{trigger:"axis"}),xAxis:L({type:"\
value",...n.step?Rt(n):{min:0},unit:"ns",axisLabel:{hideOverlap:!0}}),yAxis:L({type:"value",min:0,unit:e}),dataZoom:[{type:"\
inside",filterMode:"none"}],series:i.map((l,r)=>({name:l.title,type:"line",step:"end",showSymbol:!1,lineStyle:{width:1.4,
color:y.color(r),type:Ve[Q(r)]},itemStyle:{color:y.color(r)},areaStyle:i.length===1?{color:y.color(r),opacity:.14}:void 0,
data:l.ts.map((h,u)=>[h,l.values[u]]),markPoint:s&&r===0?ai(s):void 0}))}));let a=t.length>i.length?` (the first ${i.length}\
 of ${t.length})`:"";return d("div",{},o,F(i.map((l,r)=>({name:l.title,color:r})),{more:a}))}function ai({ts:n,value:t,name:e}){
return{symbol:"circle",symbolSize:9,data:[{coord:[n,t],name:e}],label:{show:!0,position:"left",distance:8,color:y.value(
"text"),formatter:()=>e}}}var ri=({device:n,kind:t})=>({gpu:!0,device:n,has:(e,s,o,i)=>/^mem(cpy|set)/i.test(o.names[i])&&o.names[i].toLowerCase().
includes(t.toLowerCase())}),li=({op:n,kernels:t})=>({gpu:!1,name:n,has:(e,s)=>e.device_events[s]===t.split(" | ").length,
orElse:{gpu:!1,name:n}});function cs(n,t){let{idle_causes:e,launches:s,queues:o,copies:i,sequences:a}=t.analysis;if(!s.length&&
!e.length&&!i.length)return null;let l=new Set(e.map(p=>p.device)).size>1,r=p=>o.find(({device:g,stream:f})=>g===p.device&&
f===p.stream),h=p=>t.counters.filter(g=>g.kind===p),u=e.map(p=>({...r(p),...p,number:p.stream,stream:Ie(p,l)}));return $(
"launches","Launches, queues, copies","Why streams wait, how long launches take and wait, how fast copies are, and which\
 kernels operators launch in a row.",O("Why streams wait, and their queues",`host: launched late; kernel: under ${t.analysis.
consecutive_kernel_delay_ns/1e3} µs behind the event before; before and after: no event yet, none any more; a queue of 1\
,024 blocks the host`,[c.text("stream","Stream"),c.ns("idle_ns","Idle"),c.ns("host_wait_ns","Host",{like:"idle_ns"}),c.ns(
"kernel_wait_ns","Kernel",{like:"idle_ns"}),c.ns("other_ns","Other",{like:"idle_ns"}),c.ns("before_first_ns","Before",{like:"\
idle_ns"}),c.ns("after_last_ns","After",{like:"idle_ns"}),c.count("longest","Longest queue"),c.other("mean","Mean queue",
"launches"),c.ns("full_ns","Queue full")],u,{sort:"idle_ns",name:"idle_causes",jump:({device:p,number:g})=>({gpu:!0,device:p,
stream:g,gap:!0})}),h("queue").length?x("Launches in the queue","launched and not begun",zt(t,h("queue"),"")):null,O("La\
unches",null,[c.code("call","Call"),c.count("count","Events"),c.ns("median_call_ns","Call, median"),c.ns("median_delay_n\
s","Delay, median"),c.ns("max_delay_ns","Delay, longest"),c.count("short","Shorter than their call"),c.count("long_calls",
"Calls over 50 µs"),c.count("long_delays","Delays over 100 µs")],s,{sort:"count",name:"launches"}),i.length?x("Copies \
and memsets",null,h("bandwidth").length?zt(t,h("bandwidth"),"bytes/s"):null,H([c.text("kind","Kind"),c.count("device","D\
evice"),c.count("count","Count"),c.bytes("bytes","Bytes"),c.ns("total_ns","Sum of durations"),c.ns("busy_ns","At least o\
ne"),c.bandwidth("bytes_per_second","Bandwidth")],i,{sort:"bytes",name:"copies",jump:ri})):null,O("Sequences of kernels",
"what one call of an operator launches, in order, where it recurs; candidates for fusion",[c.code("op","Operator"),c.count(
"count","Calls"),c.ns("gpu_ns","GPU time"),c.ns("host_ns","Host time"),c.code("kernels","Kernels")],a.filter(p=>p.count>
1),{sort:"gpu_ns",name:"sequences",jump:li}))}var ci={"allocator events":"what the allocators recorded (profile_memory)","tensors of the ET":"the tensors of the Execu\
tion Trace, from the call that makes a storage to the last that uses it"},hs=[c.code("operator","Allocated by"),c.text("\
category","Category")],ds=[c.count("blocks","Blocks"),c.bytes("bytes","Size")];function us(n,t){let{memory:e,memory_holders:s,
memory_outliving:o}=t.analysis;if(!e.length)return null;let i=e.filter(a=>a.peak_bytes>=.01*e[0].peak_bytes);return $("m\
emory","Memory",`How much is allocated over time, who holds it at the peak, and what outlives its iteration; from ${ci[e[0].
source]}.`,...i.map(a=>hi(t,a,s)),O("Devices",null,[c.text("device","Device"),c.bytes("peak_bytes","Peak"),c.bytes("befo\
re_bytes","Before the trace"),c.bytes("end_bytes","At the end"),c.bytes("reserved_peak_bytes","Reserved",{hint:"By the a\
llocator, at most"}),c.count("blocks","Blocks"),c.bytes("allocated_bytes","Allocated in all")],e,{sort:"peak_bytes",filter:!1,
name:"memory",jump:a=>ms(t,a)}),O("What outlives its iteration","allocated in one iteration and held at its end, over al\
l iterations",[...hs,c.text("device","Device"),...ds,c.bytes("next_bytes","Freed in the next",{like:"bytes"}),c.bytes("k\
ept_bytes","Never freed",{like:"bytes"})],o,{sort:"bytes",name:"memory_outliving",jump:({operator:a})=>({gpu:!1,name:a})}))}
function hi(n,t,e){let s=e.filter(r=>r.device===t.device),o={};for(let r of s)o[r.category]=(o[r.category]??0)+r.bytes;let i=Object.
keys(o).sort((r,h)=>o[h]-o[r]),a={ts:t.peak_ns-n.start_ns,value:t.peak_bytes,name:`peak ${m(t.peak_bytes,"bytes")}`},l=r=>r.
device===t.number&&["allocated","reserved"].includes(r.kind);return x(`Allocated on ${t.device}`,`peak ${m(t.peak_bytes,
"bytes")} at ${m(a.ts,"ns")}`,zt(n,n.counters.filter(l),"bytes",{mark:a.ts>=0?a:null}),d("h3",{},"Held at the peak"),nt(
[{name:"",whole:t.peak_bytes,parts:i.map((r,h)=>({name:r,color:h,ns:o[r]}))}],{unit:"bytes"}),H([...hs,c.code("modules",
"Module",{front:!0}),c.code("source","Line",{front:!0}),...ds,c.share("share","Share")],s.map(r=>({...r,modules:r.modules.
replaceAll("nn.Module: ",""),share:r.bytes/(t.peak_bytes||1)})),{sort:"bytes",name:`memory_holders ${t.device}`,jump:r=>di(
r)??ms(n,t)}))}var ms=(n,{peak_ns:t})=>({from:t-n.start_ns,to:t-n.start_ns}),di=({operator:n,source:t})=>A.timeline?.names.
has(te(n))?{...t?$t(t,!1):{gpu:!1},name:n,orElse:{gpu:!1,name:n}}:null;var ui="GPU events launched with nothing of this table between",mi=[c.count("count","Calls"),c.ns("self_ns","Host self",
{like:"total_ns",hint:"On the host, without the calls inside"}),c.ns("total_ns","Host total",{hint:"On the host, with th\
e calls inside"}),c.ns("device_self_ns","GPU self",{like:"device_total_ns",hint:ui}),c.ns("device_total_ns","GPU total",
{hint:"With the GPU events launched inside"})];function ps(n,t){let{operators:e,modules:s}=t.analysis;if(!e.length&&!s.length)
return null;let o=e.some(r=>r.device_total_ns),i=mi.filter(r=>o||!r.key.startsWith("device")),a="GPU events of backward \
whose forward operator is inside",l=o?c.ns("backward_total_ns","Backward",{like:"device_total_ns",hint:a}):null;return $(
"operators","Operators and modules","Self is without what runs inside, total with it; an operator inside one of the same\
 name counts once.",O("By operator",U(t,"operators"),[c.code("op","Operator"),c.text("shapes","Shapes"),...i,c.count("la\
unches","GPU events")],e,{sort:o?"device_self_ns":"self_ns",name:"operators",jump:({op:r})=>({gpu:!1,name:r})}),O("By mo\
dule class",U(t,"modules")??"modules of one class at one place in one row",[c.code("module","Module or annotation",{indent:"\
depth"}),...i,l,c.text("path","In",{front:!0})],s,{sort:"",name:"modules",jump:pi}))}function pi({path:n,device_total_ns:t}){
let e=n.split(" / ").at(-1),s=new Map,o=new Map,i=(r,h,u)=>{let p=tt(xt(r,h));return p===n&&Pt(u)===e||(p?`${p} / ${Pt(u)}`:
Pt(u))===n},a=(r,h)=>`${tt((r.modules[h]??"").split(" / "))} / `.startsWith(`${n} / `),l=(r,h,u)=>r.get(h)??r.set(h,u()).
get(h);return{gpu:!1,has:({path:r},h,u,p)=>l(s,`${r[h]} ${p}`,()=>i(u,r[h],u.names[p])),orElse:{gpu:t>0,has:({module:r},h,u)=>l(
o,r[h],()=>a(u,r[h]))}}}var ye=[["t1","T1","between operators","Gap between an operator and the next one of the same thread and caller"],["t2","\
T2","before the first launch","From an operator's start to its first launch"],["t3","T3","after the last launch","From t\
he end of an operator's last launch to its end"],["t4","T4","launching call","The runtime call itself, as measured"],["t\
5","T5","between launches","Between two launches of an operator; of one without launches its own time"]];function fs(n,t){
let{overheads:e,host_ops:s}=t.analysis,o=ye.map(([l,r,h,u])=>({key:l,title:r,text:h,hint:u,...l==="t1"?e.t1:e.all[l]??{}})).
filter(l=>l.n);if(!o.length&&!s.length)return null;let i=[...new Set(["t2","t3","t5"].flatMap(l=>Object.keys(e[l])))].map(
l=>{let r=s.find(u=>u.op===l),h=u=>e[u][l]?e[u][l].mean*1e3:null;return{op:l,count:r?.count??null,total:r?.total_ns??null,
t2:h("t2"),t3:h("t3"),t5:h("t5"),launches:nn(e.launches[l]??[]),n:Math.max(...["t2","t3","t5"].map(u=>e[u][l]?.n??0))}}),
a=Object.entries(e.t4).map(([l,r])=>({call:l,n:r.n,mean:r.mean*1e3,std:r.std*1e3,all:r.mean_with_outliers*1e3,outliers:r.
outliers,sum:r.mean_with_outliers*1e3*(r.n+r.outliers)}));return $("overheads","Launch overheads",`What the host spends \
around operators and launches, less ${e.cpu_event_overhead_us} µs for every event of the profiler; outliers left out.`,
et([5,7],x("The five overheads","mean; whiskers: one standard deviation",o.length?gi(o):ot("No operator of the trace lau\
nches anything.")),x("T4 by runtime call",null,a.length?fi(a):ot("The trace has no launches."))),x("By operator","topmos\
t operators; host time holds everything they call",H([c.code("op","Operator"),c.count("count","Count"),c.ns("total","Hos\
t time"),c.ns("t2","T2",{hint:ye[1][3]}),c.ns("t3","T3",{like:"t2",hint:ye[2][3]}),c.ns("t5","T5",{hint:ye[4][3]}),c.code(
"launches","Launches with")],i,{sort:"total",name:"overheads",jump:({op:l})=>({gpu:!1,name:l})})))}function fi(n){let t=[
c.code("call","Call"),c.count("n","Rows"),c.ns("mean","Mean"),c.ns("std","Deviation",{like:"mean"}),c.count("outliers","\
Outliers"),c.ns("all","Mean with them"),c.ns("sum","Sum")];return H(t,n,{sort:"sum",name:"t4"})}function gi(n){let t=d("\
div"),e=n.slice().reverse();return W(t,34*e.length+40,()=>({grid:{left:158,right:20,top:4,bottom:26},tooltip:j(s=>{let o=e[s.
dataIndex];return R(`${o.title}: ${o.hint}`,[["mean",`${z(o.mean)} µs`],["standard deviation",`${z(o.std)} µs`],["rows",
m(o.n,"count")],["clipped to 0",m(o.clipped,"count")],["outliers left out",m(o.outliers,"count")],["mean with them",`${z(
o.mean_with_outliers)} µs`]])}),xAxis:L({type:"value",min:0,splitNumber:4,axisLabel:{formatter:s=>`${s} µs`}}),yAxis:L(
{type:"category",data:e.map(s=>`${s.title} ${s.text}`),axisLine:{show:!1},axisLabel:{color:y.value("text")}}),series:[{type:"\
bar",barWidth:16,itemStyle:{color:y.color(0),borderRadius:[0,3,3,0]},data:e.map(s=>s.mean)},{type:"custom",silent:!0,z:5,
data:e.map((s,o)=>[Math.max(0,s.mean-s.std),s.mean+s.std,o]),encode:{x:[0,1],y:2},renderItem:(s,o)=>{let[i,a]=o.coord([o.
value(0),o.value(2)]),[l]=o.coord([o.value(1),o.value(2)]),r={stroke:y.value("text"),lineWidth:1.2,opacity:.75};return{type:"\
group",children:[[i,a,l,a],[i,a-4,i,a+4],[l,a-4,l,a+4]].map(([h,u,p,g])=>({type:"line",shape:{x1:h,y1:u,x2:p,y2:g},style:r}))}}}]})),
t}function gs(n,t){let e=t.path_rows;if(!e?.length)return null;let s=e.reduce((l,r)=>l+r.ns,0),o=new Map;for(let{kind:l,ns:r}of e)
o.set(l,(o.get(l)??0)+r);let i={...je},a=[...o].filter(([,l])=>l>0).sort((l,r)=>r[1]-l[1]);return a.forEach(([l],r)=>i[l]??=
[1,3,5,6,7,8,9][r%7]),$("path","Critical path",`The longest path of the replay: what does not lie on it can become faste\
r without any gain. All rows together are ${m(s,"ns")}${t.step?", the part of this step":""}.`,x("By kind",null,nt([{name:"",
whole:s,parts:a.map(([l,r])=>({name:l,color:i[l],ns:r}))}])),O("By kind, kernel, operator, module and line",null,[c.text(
"kind","Kind"),c.ns("ns","Time"),c.share("share","Share"),c.count("count","Elements",{hint:"Runs of such work that follo\
w one another on the path"}),c.code("kernel","Kernel or runtime call"),c.code("operator","Operator"),c.text("module","Mo\
dule",{front:!0}),c.code("place","Line",{front:!0})],e.map(l=>({...l,share:l.ns/(s||1)})),{sort:"ns",name:"critical_path",
jump:yi}))}function yi({id:n,from:t,to:e}){let s=t===null?null:{from:t,to:e};return n<0?s:{...ut([n]),orElse:s}}var Mt=16,Ot=14,ys=26,bi=38,wi=100,ze=[{name:"Computing",color:4},{name:"Copy",color:9},{name:"Communication",color:2},{
name:"Host call",color:0}],bs={name:"Waits for the last to arrive",color:1},be={name:"Collective, all have come",color:3},
Ge=class{constructor(t,e,s){this.job=t,this.labels=e,this.iterations=s,this.at=-1,this.tops=[];let o=bi;for(let l of t.ranks)
this.tops.push(o),o+=l.lanes.length*Mt+Ot+ys;this.height=o;let i="Ranks on one clock; keys w and s zoom, a and d move, n\
 and p go to the next and previous collective",a="n and p, or the buttons, go from collective to collective.";this.canvas=
d("canvas",{tabindex:0,role:"img","aria-label":i}),this.picked=d("div",{class:"picked",role:"status"},a),this.hover=d("d\
iv",{class:"hover",hidden:!0}),this.build(),this.whole={from:0,to:t.span},this.view(0,t.span)}build(){let t=(l,r,h)=>d("\
button",{type:"button",title:r,onclick:h},l),e=this.iterations.length?d("select",{"aria-label":"Iteration",onchange:l=>this.
step(l.target.value)},d("option",{value:""},"All iterations"),this.iterations.map((l,r)=>d("option",{value:r},l.name))):
null;this.steps=e;let s=[t("‹ Collective","The one before (p)",()=>this.go(this.at-1)),t("Collective ›","The next on\
e (n)",()=>this.go(this.at+1)),t("Longest wait","The collective in which ranks wait longest together",()=>this.go(this.worst()))],
o=[t("‹","The iteration before",()=>this.turn(-1)),e,t("›","The next iteration",()=>this.turn(1))],i=d("div",{class:"\
tools"},this.job.collectives.length?s:null,e?o:null,d("span",{class:"push"}),t("+","Zoom in (w)",()=>this.zoom(.4)),t("−",
"Zoom out (s)",()=>this.zoom(2.5)),t("Fit","All of it: the whole job, or the step chosen",()=>this.view(this.whole.from,
this.whole.to))),a=d("div",{class:"lanes ranks"},this.job.ranks.map((l,r)=>{let h=l.lanes.map(p=>d("i",{},p)),u=d("div",
{class:"lane"},d("b",{},this.labels[r]),h);return u.style.top=`${this.tops[r]-Mt}px`,u}));this.node=d("div",{},i,d("div",
{class:"timeline"},a,d("div",{class:"frame"},this.canvas,this.hover)),this.picked),this.canvas.addEventListener("keydown",
l=>this.key(l)),this.canvas.addEventListener("wheel",l=>this.wheel(l),{passive:!1}),this.canvas.addEventListener("pointe\
rdown",l=>this.grab(l)),this.canvas.addEventListener("pointermove",l=>this.point(l)),this.canvas.addEventListener("point\
erleave",()=>this.hover.hidden=!0),this.canvas.addEventListener("click",l=>this.click(l)),new ResizeObserver(()=>this.draw()).
observe(this.canvas.parentNode)}view(t,e){let s=Math.min(Math.max(e-t,wi),this.job.span||1);this.from=Math.min(Math.max(
0,t),Math.max(0,this.job.span-s)),this.to=this.from+s,this.canvas.dataset.view=`${this.from} ${this.to}`,this.draw()}zoom(t,e=(this.
from+this.to)/2){this.view(e-(e-this.from)*t,e+(this.to-e)*t)}go(t){let e=this.job.collectives;if(!e.length)return;this.
at=(t+e.length)%e.length;let s=e[this.at],o=Math.min(...s.start),i=Math.max(...s.end);this.view(o-(i-o)*.6,i+(i-o)*.6),this.
describe(s)}worst(){let t=e=>(e.wait??[]).reduce((s,o)=>s+o,0);return this.job.collectives.reduce((e,s,o,i)=>t(s)>t(i[e])?
o:e,0)}step(t){let e=this.iterations[t];e?this.view(e.start,e.end):this.view(0,this.job.span)}turn(t){let e=this.iterations.
length,s=this.steps.value===""?t>0?-1:e:Number(this.steps.value);this.steps.value=(s+t+e)%e,this.step(this.steps.value)}describe(t){
let e=(t.wait??[]).map((a,l)=>[a,this.labels[t.members[l]]]).filter(([a])=>a>0);e.sort((a,l)=>l[0]-a[0]);let s=e.slice(0,
8).map(([a,l])=>`${l} waits ${m(a,"ns")}`),o=s.length?`; ${s.join(", ")}${e.length>s.length?", …":""}`:"",i=`${_.format(
this.at+1)} of ${_.format(this.job.collectives.length)}`;this.picked.dataset.at=this.at,this.picked.replaceChildren(d("c\
ode",{},`${t.kind}${t.bytes>=0?` ${m(t.bytes,"bytes")}`:""}`),` ${t.group?`group ${t.group}, `:""}${t.members.length} ra\
nks, ${i}`,t.last===null?" · its ranks do not have to wait for each other":` · ${this.labels[t.last]} is the last to a\
rrive${o}`)}key(t){let e=(this.to-this.from)/5,s={w:()=>this.zoom(.6),s:()=>this.zoom(1/.6),a:()=>this.view(this.from-e,
this.to-e),d:()=>this.view(this.from+e,this.to+e),n:()=>this.go(this.at+1),p:()=>this.go(this.at-1),Escape:()=>this.view(
0,this.job.span)}[{ArrowLeft:"a",ArrowRight:"d","+":"w","-":"s"}[t.key]??t.key];!s||t.ctrlKey||t.metaKey||t.altKey||(t.preventDefault(),
s())}wheel(t){t.ctrlKey&&(t.preventDefault(),this.zoom(Math.exp(Math.max(-1,Math.min(1,t.deltaY/200))),this.time(t.offsetX)))}grab(t){
let{from:e,to:s}=this;Ht(o=>{let i=(t.clientX-o.clientX)/this.width*(s-e);this.view(e+i,s+i)})}time(t){return this.from+
t/this.width*(this.to-this.from)}x(t){return(t-this.from)/(this.to-this.from)*this.width}bar(t){return this.tops[t]+this.
job.ranks[t].lanes.length*Mt}collectiveAt(t,e){let s=this.time(t),o=2*(this.to-this.from)/this.width,i=(a,l,r)=>e>=l&&e<
l+Ot&&a.start[r]-o<=s&&s<=a.end[r]+o;return this.job.collectives.findIndex(a=>a.members.some((l,r)=>i(a,this.bar(l),r)))}click(t){
let e=this.collectiveAt(t.offsetX,t.offsetY);e<0||(this.at=e,this.draw(),this.describe(this.job.collectives[e]))}point(t){
let{offsetX:e,offsetY:s}=t,o=this.collectiveAt(e,s),i=o>=0?this.collective(this.job.collectives[o]):this.blockAt(e,s);this.
hover.hidden=!i,i&&(this.hover.replaceChildren(R(i[0],i[1].slice(0,16))),this.hover.style.left=`${Math.min(e+14,Math.max(
0,this.width-this.hover.offsetWidth-4))}px`,this.hover.style.top=`${s+14}px`)}collective(t){let e=o=>t.wait?`, waits ${m(
t.wait[o],"ns")}`:"",s=(o,i)=>[this.labels[o],m(t.end[i]-t.start[i],"ns")+e(i)];return[t.kind,t.members.map(s)]}blockAt(t,e){
let s=this.tops.findLastIndex(h=>e>=h),o=this.job.ranks[s],i=o?Math.floor((e-this.tops[s])/Mt):-1,a=this.time(t);if(!o||
i<0||i>=o.lanes.length)return null;let l=o.ts.findIndex((h,u)=>o.lane[u]===i&&h<=a&&a<=h+o.dur[u]);if(l<0)return null;let r=o.
count[l];return[this.job.names[o.name[l]],[[this.labels[s],o.lanes[i]],["time",m(o.dur[l],"ns")],r>1?["together",`${_.format(
r)} events, the longest named`]:["kind",ze[o.kind[l]].name]]]}draw(){let t=this.canvas.parentNode?.clientWidth;if(!t)return;
this.width=t;let e=devicePixelRatio||1;this.canvas.width=t*e,this.canvas.height=this.height*e,this.canvas.style.width=`${t}\
px`,this.canvas.style.height=`${this.height}px`;let s=this.canvas.getContext("2d");s.scale(e,e),this.drawAxis(s),this.job.
ranks.forEach((i,a)=>this.drawRank(s,i,a));let o=this.job.collectives.map((i,a)=>[i,a]).filter(([i])=>Math.min(...i.start)<=
this.to&&Math.max(...i.end)>=this.from);for(let[i,a]of o)this.drawJoint(s,i,a===this.at);for(let[i,a]of o)this.drawBars(
s,i,a===this.at)}drawAxis(t){let e=this.to-this.from,s=e/Math.max(2,this.width/130),o=10**Math.floor(Math.log10(s)),i=[1,
2,5,10].map(a=>a*o).find(a=>a>=s);t.font=`12px ${y.value("sans")}`;for(let a=Math.ceil(this.from/i)*i;a<=this.to;a+=i)t.
fillStyle=y.value("line"),t.fillRect(this.x(a),0,1,this.height),t.fillStyle=y.value("muted"),t.fillText(rt(a,"ns"),this.
x(a)+4,13)}drawRank(t,e,s){let o=this.tops[s];t.fillStyle=y.value("line"),t.fillRect(0,o-ys+8,this.width,1);let i=ze.map(
({color:a})=>qt(t,a));for(let a=0;a<e.ts.length;a++){let l=this.x(e.ts[a]),r=this.x(e.ts[a]+e.dur[a]);r<0||l>this.width||
(t.fillStyle=i[e.kind[a]],t.fillRect(Math.max(-1,l),o+e.lane[a]*Mt+1,Math.max(1,Math.min(r,this.width+1)-Math.max(-1,l)),
Mt-3))}}drawJoint(t,e,s){t.fillStyle=y.color(be.color),t.strokeStyle=s?y.value("text"):y.color(be.color),t.lineWidth=s?1.5:
.75;for(let o=0;o+1<e.members.length;o++){let i=this.bar(e.members[o])+Ot-2,a=this.bar(e.members[o+1])+1;t.globalAlpha=s?
.3:.14,t.beginPath(),t.moveTo(this.x(e.start[o]),i),t.lineTo(this.x(e.end[o]),i),t.lineTo(this.x(e.end[o+1]),a),t.lineTo(
this.x(e.start[o+1]),a),t.closePath(),t.fill(),t.globalAlpha=s?1:.5,t.stroke()}t.globalAlpha=1}drawBars(t,e,s){e.members.
forEach((o,i)=>{let a=this.bar(o)+1,l=this.x(e.start[i]),r=Math.max(l+1,this.x(e.end[i])),h=e.wait?Math.min(r,this.x(e.start[i]+
e.wait[i])):l;t.fillStyle=qt(t,bs.color),t.fillRect(l,a,h-l,Ot-3),t.fillStyle=qt(t,be.color),t.fillRect(h,a,r-h,Ot-3),e.
last===o&&(t.fillStyle=y.value("text"),t.beginPath(),t.moveTo(l-5,a-1),t.lineTo(l+5,a-1),t.lineTo(l,a+6),t.fill()),s&&(t.
strokeStyle=y.value("text"),t.lineWidth=1.5,t.strokeRect(l,a,r-l,Ot-3))})}};function ws(n){let t=n.job;if(!t)return null;
let e=n.ranks.map(We),s=t.ranks[0].begin-t.ranks[0].first,o=n.ranks[0].analysis.iteration_list.map(f=>({name:f.name,start:f.
start+s,end:f.end+s})),i=new Ge(t,e,o),a=t.ranks.map((f,b)=>({...f,at:b,label:e[b]})),l=t.collectives.map((f,b)=>({at:b,
kind:f.kind,group:f.group,bytes:f.bytes<0?null:f.bytes,start:Math.min(...f.start),length:Math.max(...f.end)-Math.min(...f.
start),waited:f.wait?.reduce((M,v)=>M+v,0)??null,longest:f.wait?Math.max(...f.wait):null,last:f.last===null?null:e[f.last]}));
if(n.ranks[0].step&&o.length){let{start:f,end:b}=o[0];i.whole={from:f,to:b},i.view(f,b)}Zt(i);let r=ze.filter((f,b)=>t.ranks.
some(M=>M.kind.includes(b))),h=f=>{i.node.scrollIntoView({block:"nearest"}),i.go(f.at)},u=a.some(f=>f.offset!==null)?"Cl\
ocks are set by the collectives that no rank can leave before all have come: these end at the same time.":"No collective\
 joins the ranks, so their clocks are as recorded.",p=[t.left_out?`${_.format(t.left_out)} collectives with the least wa\
iting are left out`:null,t.unmatched?`${_.format(t.unmatched)} that not all ranks of the group have alike`:null].filter(
Boolean),g=n.many?`Streams of the ${t.ranks.length} ranks shown in detail, of ${_.format(n.many.numbers.length)},`:"Stre\
ams of all ranks,";return $("axis","Ranks on one clock",`${g} and below them the collectives, joined from rank to rank; \
a triangle marks the rank that came last. ${u}`,x(null,null,F([...r,be,bs]),i.node),O("Collectives",p.join("; ")||"a cli\
ck on a row shows it above",[c.ns("start","At"),c.text("kind","Collective"),c.text("group","Group"),c.bytes("bytes","Mes\
sage"),c.ns("length","From first to last",{hint:"From the first rank's start to the last one's end"}),c.ns("waited","Wai\
ted",{hint:"By all ranks together, for the last to arrive"}),c.ns("longest","Longest wait"),c.text("last","Last to arriv\
e")],l,{sort:"waited",name:"collectives",click:h}),O("Who waits for whom",null,[c.text("label","Rank"),c.count("collecti\
ves","Collectives",{hint:"Of those in which ranks wait for each other"}),c.count("last","Last to arrive"),c.ns("caused",
"Others waited for it"),c.ns("waited","Waited itself"),c.ns("offset","Clock ahead",{hint:"Of the lowest rank's; taken of\
f"}),c.ns("spread","Spread",{hint:"Median distance of single collectives from that"})],a,{sort:"caused",filter:!1,name:"\
waits",click:f=>at(f.at)}))}var vi=200;function vs(n,t){let{sources:e,phases:s}=t.analysis;if(!e.length&&!s.some(a=>a.phase!=="not known"))return null;
let o=e.some(a=>a.device_self_ns),i=o?"device_self_ns":"host_ns";return $("source","Source",e.length?"Work counts to the\
 innermost line of own code that called it, backward work to that of its forward operator.":null,e.length?_i(e,i,U(t,"so\
urces")):null,O("By source line",U(t,"sources"),[c.code("place","Line",{front:!0}),c.code("function","Function"),c.text(
"kind",""),...o?[c.ns("device_self_ns","GPU self",{like:"device_total_ns",hint:"GPU events that it launched itself"}),c.
ns("device_total_ns","GPU total",{hint:"With those of lines called from it"}),c.ns("backward_ns","Backward",{like:"devic\
e_total_ns",hint:"Part of GPU self"}),c.count("launches","GPU events"),c.ns("idle_ns","Idle caused",{hint:"The device ha\
d nothing to run until an event of this line"})]:[],c.ns("host_ns","Host",{hint:"Host time of the operators that it call\
ed"}),c.count("calls","Calls")],e.map(a=>({...a,place:`${a.file}:${a.line}`,kind:[a.own?"":"not own code",a.fused?`${a.fused}\
 fused`:""].filter(Boolean).join(", ")})),{sort:i,name:"sources",jump:ks}),O("By phase",null,[c.text("phase","Phase"),c.
count("calls","Operators"),c.ns("host_ns","Host"),c.ns("device_ns","GPU"),c.share("share","Share"),c.count("launches","G\
PU events"),c.ns("idle_ns","Idle caused")],s,{sort:"",filter:!1,name:"phases",jump:ki}))}var ks=({place:n,device_self_ns:t})=>$t(
n,t>0),ki=({phase:n,launches:t})=>({gpu:t>0,has:(e,s,o)=>(o.phases[e.phase[s]]||"not known")===n});function _i(n,t,e){let s=new Map;
for(let u of n)u[t]>0&&s.set(u.file,[...s.get(u.file)??[],u]);let o=u=>u.reduce((p,g)=>p+g[t],0),i=Math.max(...n.map(u=>u[t]),
1),a=[...s].sort((u,p)=>o(p[1])-o(u[1])),l=d("div",{class:"files"}),r=d("input",{type:"search",placeholder:"Search files\
 and functions…","aria-label":"Search files"}),h=()=>{let u=r.value.toLowerCase(),p=vi;l.replaceChildren();for(let[g,f]of a){
let b=g.toLowerCase().includes(u),M=f.filter(k=>b||k.function.toLowerCase().includes(u));if(!M.length||p<=0)continue;let v=M.
sort((k,C)=>k.line-C.line).slice(0,p);p-=v.length,l.append(d("h4",{},d("code",{},g)," ",Y(m(o(f),"ns"))),...v.map(k=>{let C=d(
"span",{class:"heat"}),P=k[t]/i;return C.style.width=`${(100*P).toFixed(2)}%`,d("button",{type:"button",class:"line","da\
ta-line":`${g}:${k.line}`,title:`${g}:${k.line} ${k.function}`,onclick:I=>_t(ks({...k,place:`${g}:${k.line}`}),I.currentTarget)},
C,d("span",{class:"number"},String(k.line)),d("code",{},k.function),d("span",{class:"push"},m(k[t],"ns")))}))}};return r.
addEventListener("input",h),h(),x("Lines by file",e,r,l)}var xi=[ie,Dn,as,ws,os,is,gs,Hn,Mn,ps,vs,Nn,ls,fs,jn,cs,us,Cn,Kn];async function Ct(n,t=null){let{report:e}=A,s=Ct.asked=
(Ct.asked??0)+1,o=e.ranks[n],i=t===null?null:o.steps[t],a=i?await An(e,i):e;if(typeof o.path_rows=="string"&&(o.path_rows=
await vt(o.path_rows)),s!==Ct.asked)return;let l=a.ranks[n];for(let h of J)h.instance?.dispose();J.clear(),bt.clear(),wt.
clear(),A.timeline=A.cameFrom=null,e.difference||en(o.analysis.kernel_labels);let r=e.difference?Ln:xi;T("sections").replaceChildren(
...r.map(h=>h(a,l)).filter(Boolean)),on(),i&&A.timeline?.showStep(i);for(let h of J)h.draw();T("subtitle").textContent=[
...new Set(Object.values(l.analysis.devices).map(h=>h.name??"unnamed device")),...i?[`only ${i.name}`]:[]].join(", "),$i(),
Re(),document.documentElement.dataset.step=i?i.number:""}var He=null;function $i(){He?.disconnect();let n=new Set;He=new IntersectionObserver(
t=>{for(let s of t)s.isIntersecting?n.add(s.target):n.delete(s.target);let e=[...document.querySelectorAll("section")].find(
s=>n.has(s));ln(e?.id)},{rootMargin:"-70px 0px -55% 0px"});for(let t of document.querySelectorAll("section"))He.observe(
t)}var _s={auto:"◐ Auto",light:"☀ Light",dark:"☾ Dark"};function Gt(n){y.choice=n,y.apply(),T("theme").textContent=
_s[n];for(let t of J)t.draw()}function Si(){document.documentElement.classList.add("paper"),y.paper=!0,Gt(y.choice);for(let n of wt)
n();for(let n of document.querySelectorAll("details.more"))n.open=!0}function Mi(){document.documentElement.classList.remove(
"paper"),y.paper=!1,Gt(y.choice);for(let n of wt)n()}async function Oi(){A.report=JSON.parse(T("report").textContent),A.
draw=Ct;let{report:n}=A;rn(),addEventListener("hashchange",Re),T("title").textContent=n.title,T("footer").textContent=`e\
tplus ${n.version} · times are as the profiler recorded them, its own cost included · charts by Apache ECharts`;let t=n.
ranks.length>1;T("rank-pick").hidden=!t,T("rank").append(...n.ranks.map((o,i)=>d("option",{value:i},o.label))),T("rank").
addEventListener("change",()=>at(Number(T("rank").value))),T("step").addEventListener("change",()=>Ct(Number(T("rank").value),
T("step").value===""?null:Number(T("step").value))),Ae(n.ranks[0]);let e=Object.keys(_s);T("theme").addEventListener("cl\
ick",()=>Gt(e[(e.indexOf(y.choice)+1)%e.length])),y.system.addEventListener("change",()=>y.choice==="auto"&&Gt("auto")),
addEventListener("beforeprint",Si),addEventListener("afterprint",Mi);let s;addEventListener("resize",()=>{clearTimeout(s),
s=setTimeout(()=>{for(let o of J)o.instance?.resize()},120)}),Gt("auto"),await Ct(0),document.documentElement.dataset.ready=
"yes"}Oi();})();

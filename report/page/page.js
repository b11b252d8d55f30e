"use strict";(()=>{function d(n,t={},...e){let s=document.createElement(n);for(let[o,i]of Object.entries(t))i==null||i===!1||(o==="class"?s.
className=i:o.startsWith("on")?s.addEventListener(o.slice(2),i):o.startsWith("--")?s.style.setProperty(o,i):s.setAttribute(
o,i===!0?"":i));return s.append(...e.flat(1/0).filter(o=>o!=null)),s}var q=n=>n?d("small",{},n):null,tt=n=>d("p",{class:"\
none"},n);function lt(n,t){return t.length?d("ul",{class:n},t.map(e=>d("li",{},e))):null}function gt(n){return d("dl",{class:"\
facts"},n.filter(t=>t!==null).flatMap(([t,e])=>[d("dt",{},t),d("dd",{},e)]))}function Ut(n,t=()=>{}){let e=s=>{removeEventListener(
"pointermove",n),removeEventListener("pointerup",e),t(s)};addEventListener("pointermove",n),addEventListener("pointerup",
e)}function yt(n,t,e,s){let o={Enter:n.shiftKey?-1:1,ArrowDown:1,ArrowUp:-1}[n.key];!o||!e||(n.preventDefault(),s(t<0&&o<
0?e-1:(t+o+e)%e))}async function Kt(n){try{return await navigator.clipboard.writeText(n),!0}catch{let t=d("textarea",{"a\
ria-hidden":"true",class:"away"});t.value=n,document.body.append(t),t.select();let e=document.execCommand("copy");return t.
remove(),e}}function ve(n){let{top:t,bottom:e}=n.getBoundingClientRect();(t<60||e>innerHeight)&&n.scrollIntoView({behavior:"\
instant",block:"start"})}var Je={light:["#2f52bd","#dfa01e","#cc3a32","#40b8ae","#388f45","#dc6aa5","#7a3fc4","#9cc6fa","#845c3e","#8d96a3","#ccd\
5e6"],dark:["#5579ee","#f7cc62","#ee5f54","#6fdccf","#5ab566","#e276b1","#8650dc","#a9ccff","#a5774f","#a0abb8","#47546e"]},
_e=[0,0,1,1,0,2,2,2,3,3,0],qt=6,En={1:[[0,4,2,2],[2,2,2,2],[4,0,2,2]],2:[[1,1,2,2],[4,4,2,2]],3:[[0,2,6,2]]},ct=["circle",
"triangle","diamond","rect"],Ze=["solid","dashed","dotted",[9,3,2,3]],y={choice:"auto",system:globalThis.matchMedia?.("(\
prefers-color-scheme: dark)"),paper:!1,get name(){return this.paper?"light":this.choice==="auto"?this.system.matches?"da\
rk":"light":this.choice},color(n){let t=Je[this.name];return typeof n=="string"?this.value(n):t[n%t.length]},value(n){return getComputedStyle(
document.documentElement).getPropertyValue(`--${n}`).trim()},apply(){document.documentElement.dataset.theme=this.name,Tn()}},
Y=n=>typeof n=="string"?0:_e[n%_e.length],Ct=["#10151c","#ffffff"];function et(n){let t=e=>{let[s,o]=[Ye(e),Ye(n)].sort(
(i,a)=>i-a);return(o+.05)/(s+.05)};return t(Ct[0])>=t(Ct[1])?Ct[0]:Ct[1]}function Ye(n){let[t,e,s]=[1,3,5].map(o=>{let i=parseInt(
n.slice(o,o+2),16)/255;return i<=.03928?i/12.92:((i+.055)/1.055)**2.4});return .2126*t+.7152*e+.0722*s}var Qe=n=>et(n)===
Ct[0]?"rgb(255 255 255 / 45%)":"rgb(0 0 0 / 28%)",ke=new Map;function ts(n,t){let e=`${n} ${t}`;if(!ke.has(e)){let s=d("\
canvas",{width:qt,height:qt}),o=s.getContext("2d");o.fillStyle=n,o.fillRect(0,0,qt,qt),o.fillStyle=Qe(n);for(let i of En[t])
o.fillRect(...i);ke.set(e,s)}return ke.get(e)}function U(n){let t=y.color(n),e=Y(n);return e?{image:ts(t,e),repeat:"repe\
at"}:t}function Vt(n,t){let e=y.color(t),s=Y(t);return s?n.createPattern(ts(e,s),"repeat")??e:e}var Ln={1:n=>`repeating-\
linear-gradient(135deg, transparent 0 2px, ${n} 2px 4px)`,2:n=>`radial-gradient(${n} 1.2px, transparent 1.4px) 0 0 / 4px\
 4px`,3:n=>`repeating-linear-gradient(transparent 0 2px, ${n} 2px 4px)`},Xt=n=>typeof n=="string"?`var(--${n})`:`var(--p\
attern-${n}), var(--color-${n})`;function Tn(){Je[y.name].forEach((n,t)=>{let e=Ln[_e[t]]?.(Qe(n))??"none";document.documentElement.
style.setProperty(`--color-${t}`,n),document.documentElement.style.setProperty(`--pattern-${t}`,e)})}var Yt=(n,t)=>t.map((e,s)=>[e+n,1e3**s]),bt={ns:[["ns",1],["µs",1e3],["ms",1e6],["s",1e9]],bytes:Yt("B",["","k","M","G",
"T"]),flop:Yt("FLOP",["","k","M","G","T","P"]),"flop/s":Yt("FLOP/s",["","k","M","G","T","P"]),"bytes/s":Yt("B/s",["","k",
"M","G","T"])};function Jt(n,t){let e=bt[n],s=e[0];for(let o of e)Math.abs(t)>=o[1]&&(s=o);return s}var v=new Intl.NumberFormat(
"en-US",{maximumFractionDigits:0});function F(n){if(n===0)return"0";let t=Math.abs(n);if(t>=1e3)return v.format(n);if(t<
.001)return n.toExponential(1);let e=Math.max(0,2-Math.floor(Math.log10(t)));return n.toFixed(Math.min(e,6))}function At(n){
let t=100*n;return t===0||t===100?String(t):t<.1&&t>0?"< 0.1":t.toFixed(1)}function p(n,t){if(n==null||Number.isNaN(n))return"\
–";if(t==="share")return`${At(n)} %`;if(t==="count")return v.format(n);if(!bt[t])return t?`${F(n)} ${t}`:F(n);let[e,s]=Jt(
t,n);return`${F(n/s)} ${e}`}function at(n,t){return p(n,t).replace(/(\.\d*?)0+(?= |$)/,"$1").replace(/\.(?= |$)/,"")}function es(n){
let t=Math.abs(n);return t>=1e3?v.format(n):n.toFixed(t>=100?1:t>=10?2:3)}function ss(n,t){if(!bt[n.unit])return[n.unit===
"share"?"%":["text","count",void 0].includes(n.unit)?"":n.unit,1];let e=t.map(s=>Math.abs(s[n.like??n.key]??0)).filter(s=>s>
0);return e.sort((s,o)=>s-o),Jt(n.unit,e.length?Math.sqrt(e[e.length>>1]*e[e.length-1]):0)}function ns(n,t){let e=t==="F\
LOP/s"?"flop/s":t;return Number.isInteger(n)&&!bt[e]&&e!=="share"?`${v.format(n)} ${t}`:p(n,e)}var Et=n=>`${(n/1e6).toFixed(
6)} ms`;function Zt(n){let t=Math.round(Math.log10(n));return t>=4||t<=-3?`10${[...String(t)].map(e=>e==="-"?"⁻":"⁰¹²³\
⁴⁵⁶⁷⁸⁹"[Number(e)]).join("")}`:String(n)}var os=n=>`${n<0?"−":"+"}${(100*Math.abs(n)).toFixed(2)} %`;var V=new Set;function Qt(n){V.add({draw:()=>n.draw(),instance:{dispose(){},resize:()=>n.draw()}})}function D(n,t,e,s=()=>{}){
let o={node:n,instance:null,draw:i};n.style.height=`${t}px`,n.classList.add("chart"),V.add(o);function i(){o.instance?.dispose(),
o.instance=echarts.init(n,null,{renderer:"canvas"});let a=n.hasAttribute("aria-label");o.instance.setOption({...Pn(),aria:{
enabled:!a},...e()}),s(o.instance)}return o}function Pn(){return{animation:!1,textStyle:{fontFamily:y.value("sans"),color:y.
value("text")},backgroundColor:"transparent",tooltip:P()}}function P(n,t={}){return{confine:!0,backgroundColor:y.value("\
card"),borderColor:y.value("line"),borderWidth:1,padding:[7,10],textStyle:{color:y.value("text"),fontSize:12.5},transitionDuration:0,
extraCssText:"box-shadow:0 6px 20px rgb(0 0 0 / 18%);border-radius:8px;",formatter:n,...t}}function C({unit:n,axisLabel:t,
...e}={}){let s={lineStyle:{color:y.value("line")}},o={color:y.value("muted"),fontSize:12};return{axisLine:s,axisTick:{show:!1},
splitLine:s,minorSplitLine:{show:!1},axisLabel:{...o,formatter:n===void 0?void 0:a=>at(a,n),...t},nameTextStyle:o,...e}}
function N(n,t){return d("div",{class:"tip"},d("b",{},n),t.filter(e=>e!==null).filter(([,e])=>e!=null).map(([e,s])=>d("d\
iv",{},d("span",{},e),d("span",{},s))))}function Lt(n){let t=d("span",{class:"swatch"});return t.style.background=Xt(n),
t}function I(n,{side:t=null,more:e=null}={}){let s=n.map(o=>d("span",{},Lt(o.color),o.name));return n.length?d("div",{class:"\
legend"},t?d("b",{},t):null,s,e):null}var te=new Map;function is(n){te.clear();for(let[t,e]of Object.entries(n))te.set(t,e),t.length>400&&te.set(`${t.slice(0,
399)}…`,e)}function W(n,t=60){return n=X(n),n.length<=t?n:`${n.slice(0,Math.ceil(t*.7))}…${n.slice(n.length-Math.floor(
t*.3)+1)}`}function X(n){return te.get(n)??n.replace(/^(?:void |nn\.Module: )/,"")}var ee=n=>{let t=String(n??"");return t.
length>400?`${t.slice(0,399)}…`:t},Tt=n=>n.replace(/^nn\.Module: /,"").replace(/(?:_\d+| × \d+)$/,""),st=n=>n.map(Tt).
join(" / ");function se(n,t){let e=String(n??"");return e.toLowerCase().includes(t)||X(e).toLowerCase().includes(t)}function as(n){
let t=[];for(let e of n)t.length&&t[t.length-1][0]===e?t[t.length-1][1]+=1:t.push([e,1]);return t.map(([e,s])=>s>1?`${e}\
 ×${s}`:e).join(", ")}var E={report:null,timeline:null,cameFrom:null,draw:async()=>{}};function ht(){if(!E.timeline)throw new Error("the page \
has no timeline");return E.timeline}function rs(){E.timeline=E.cameFrom=null,Pt.clear(),wt.clear()}var A=n=>document.getElementById(
n),Pt=new Map,wt=new Set;var ls={Device:["breakdown","kernels","idle","launches"],Host:["operators","source","flame","overheads"],Job:["job","axi\
s","communication"],More:["memory","serving","tables"]};function cs(){let n=({id:o,heading:i})=>d("a",{href:`#${o}`,"dat\
a-to":o,onclick:hs},i),t=[...document.querySelectorAll("section")].map(o=>({id:o.id,heading:o.querySelector("h2")?.textContent??
""})),e=({id:o})=>Object.keys(ls).find(i=>ls[i].includes(o))??o,s=new Map;for(let o of t)s.set(e(o),[...s.get(e(o))??[],
o]);A("nav").replaceChildren(...[...s].map(([o,i])=>i.length===1||E.report.difference?i.map(n):Nn(o,i.map(n))).flat())}function Nn(n,t){
let e=d("div",{class:"list"},t),s=d("details",{class:"group"},d("summary",{},n),e);return s.addEventListener("toggle",()=>{
if(!s.open)return;for(let a of A("nav").querySelectorAll("details[open]"))a!==s&&(a.open=!1);let{left:o,bottom:i}=s.getBoundingClientRect();
e.style.top=`${i}px`,e.style.left=`${Math.max(4,Math.min(o,innerWidth-e.offsetWidth-8))}px`}),s.addEventListener("keydow\
n",o=>{o.key==="Escape"&&(s.open=!1,s.firstChild.focus())}),s}function hs(){for(let n of A("nav").querySelectorAll("deta\
ils[open]"))n.open=!1}function ds(){document.addEventListener("click",n=>{n.target.closest("nav details")||hs()})}function us(n){
for(let t of A("nav").querySelectorAll("a"))t.classList.toggle("here",t.dataset.to===n);for(let t of A("nav").querySelectorAll(
"details"))t.firstChild.classList.toggle("here",!!t.querySelector("a.here"))}async function ms(n){let t=Uint8Array.from(atob(n),s=>s.charCodeAt(0)),e=new Blob([t]).stream().pipeThrough(new DecompressionStream(
"deflate"));return new Uint8Array(await new Response(e).arrayBuffer())}async function vt(n){return JSON.parse(new TextDecoder().
decode(await ms(n)))}async function Nt(n,t,e){let s=await ms(n),o={},i=0;for(let{name:a,size:l,delta:r}of t){let h=In(s.
subarray(i,i+=e*l),e,l);if(r)for(let u=1;u<e;u++)h[u]+=h[u-1];o[a]=h}return o}function In(n,t,e){let s=new(e>4?Float64Array:
Int32Array)(t);for(let o=0;o<t;o++){let i=n[(e-1)*t+o]<<24>>24;for(let a=e-2;a>=0;a--)i=i*256+n[a*t+o];s[o]=i}return s}function k(n,t,...e){let s=n?d("h3",{},n,q(t)):null;return d("div",{class:"card"},s,e)}function J(n,...t){let e=t.filter(
s=>s!==null);return e.forEach((s,o)=>s.style.setProperty("--span",e.length>1?String(n[o]):"12")),d("div",{class:"columns"},
e)}function x(n,t,e,...s){return d("section",{id:n,"aria-labelledby":`${n}-heading`},d("h2",{id:`${n}-heading`},t),e?d("\
p",{class:"lead"},e):null,s)}function j(n,t,e){let[s,...o]=t.split(" ");return d("div",{class:"tile"},d("div",{class:"la\
bel"},n),d("div",{class:"value"},s,q(o.join(" "))),d("div",{class:"note"},e??""))}function H(n,t){let e=n.left_out[t];return e?
`${v.format(e)} further rows are left out`:null}function ne(n,t){return t.filter((e,s)=>n.some(o=>o.kind===s))}function jn(n){let e=n.split(/(?<=[;\t\r\n])/).map(s=>/^[\s\p{C}\p{Z}]*[=+\-@|＝＋－＠｜﹢﹣﹦﹫−]/u.test(s)?
`'${s}`:s).join("");return/^[\t\r\n]/.test(e)?`'${e}`:e}function ps(n,t){let e=o=>{let i=typeof o=="string"?jn(o):String(
o??"");return/[",\r\n]/.test(i)?`"${i.replaceAll('"','""')}"`:i};return[n.map(o=>o.key),...t.map(o=>n.map(i=>o[i.key]))].
map(o=>`${o.map(e).join(",")}
`).join("")}var Bn=400;async function It(n,{gpu:t,device:e,stream:s,name:o,codes:i,op:a,has:l}){let{tiles:r,details:h,step:u,data:m}=n,
f=await h.texts(),g=i??(o===void 0?null:fs(f.names,o)),b=a?fs(f.names,a):null,M=[];for(let w=0;w<r.first.length;w++){let _=m.
lanes[r.tiles.lane[w]];if(t!==void 0&&_.gpu!==t||s!==void 0&&_.stream!==s||e!==void 0&&_.device!==e)continue;let O=r.decoded.
get(w)??await r.decode(w),L=l||u?(await h.tile(w)).columns:{};for(let B=0;B<O.count;B++)g&&!g.has(O.name[B])||b&&!b.has(
O.op[B])||u&&L.step[B]!==u.number||l&&!l(L,B,f,O.name[B])||M.push({number:O.first+B,ts:O.ts[B],dur:O.dur[B]})}return M.sort(
(w,_)=>w.ts-_.ts||w.number-_.number)}var fs=(n,t)=>new Set(n.flatMap((e,s)=>e===t?[s]:[]));async function xe(n,t,e){let s=t.
slice().sort((a,l)=>l.dur-a.dur||a.ts-l.ts);if(!e)return s[0]?.number??null;let{details:o}=n,i=await o.texts();for(let{number:a}of s.
slice(0,Bn))if(await e(await o.of(a),i))return a;return null}function gs(n){let t=null,e=n[0]?.ts;for(let{ts:s,dur:o}of n)
s-e>(t?t.to-t.from:0)&&(t={from:e,to:s}),e=Math.max(e,s+o);return t}var kt=class{constructor(t,e,s=-1){this.timeline=t,this.
numbers=e,this.at=s}get text(){return this.numbers.length?`${v.format(this.at+1)} of ${v.format(this.numbers.length)}`:"\
none here"}async step(t){let e=this.numbers.length;e&&(this.at=this.at<0&&t<0?e-1:(this.at+t+e)%e,await this.timeline.inspector?.
select(this.numbers[this.at],{reveal:!0}))}};async function _t(n,t=null){let{timeline:e}=E;if(!e)return;if(E.cameFrom=t,n.from!==void 0||!e.inspector)return $e(n);let s=[],
o=n.event;if(o===void 0){let i=await It(e,n);if(!i.length&&n.orElse?.from!==void 0)return $e(n.orElse);!i.length&&n.orElse&&
(i=await It(e,n.orElse));let a=n.gap?gs(i):null;if(a)return $e(a);s=i.map(l=>l.number),o=await xe(e,i,n.fits)??await xe(
e,i)}if(o==null)return e.picked.replaceChildren("Not in the timeline: what this row is of has no event there.");(n.fits||
!s.length)&&(s=n.events??[o]),e.hits=new kt(e,s,s.indexOf(o)),ve(e.node),await e.inspector.select(o,{reveal:!0}),e.canvas.
focus({preventScroll:!0}),e.node.dataset.jumped=o}function $e({from:n,to:t,name:e}){let s=ht(),{names:o,found:i}=s.data,
a=n===void 0?i.find(r=>o[r.name]===e):null;if(a&&([n,t]=[a.ts,a.ts+a.dur]),n===void 0||t===void 0)return;ve(s.node);let l=Math.
max((t-n)*.15,20);s.show(n-l,t+l),s.inspector?.clear(),s.span?.set(n,t),s.canvas.focus({preventScroll:!0}),s.node.dataset.
jumped=`${n} ${t}`}function oe(){let{cameFrom:n}=E;n?.isConnected&&(n.scrollIntoView({behavior:"instant",block:"center"}),
n.focus({preventScroll:!0}))}function ys(n,t){let e=E.timeline?.names;if(!e)return null;let s=n.find(({key:o,unit:i})=>i===
"text"&&e.has(ee(t[o])));return s?{name:t[s.key]}:null}var Rn={kernel:["kernels",n=>t=>t.kernel===n],call:["operators",n=>t=>t.
op===n],operator:["operators",n=>t=>t.op===n],source:["sources",n=>t=>n.startsWith(`${t.place} `)||n===t.place],modules:[
"modules",n=>t=>t.path===st(n)],module:["modules",n=>t=>t.path===st(n.split(" / "))],phase:["phases",n=>t=>t.phase===n]};
function Se(n,t,e=null){let[s,o]=Rn[n]??[],i=s?Pt.get(s):void 0,a=o?.(t);if(!i||!a||!i.has(a))return null;let l=e??(Array.
isArray(t)?t.join(" / "):String(t)),r=`Its row in the table of ${s}`;return d("button",{type:"button",class:e?null:"to-r\
ow",title:r,"data-row":n,onclick:()=>i.find(a)},l)}var Me=100,Dn=8,rt=(n,t=!1)=>(e,s,o={})=>({key:e,title:s,unit:n,code:t,...o}),c={text:rt("text"),code:rt("text",!0),count:rt(
"count"),share:rt("share"),ns:rt("ns"),bytes:rt("bytes"),bandwidth:rt("bytes/s"),rate:rt("flop/s"),other:(n,t,e="")=>({key:n,
title:t,unit:e})};function S(n,t,e,s,o){return s.length?k(n,t,G(e,s,o)):null}var G=(n,t,e)=>new Oe(n,t,e).node,Oe=class{constructor(t,e,{
sort:s=null,filter:o=!0,name:i="",jump:a=null,click:l=null}={}){this.rows=e,this.name=i,this.click=l,this.columns=t.filter(
r=>r!==null).filter(({key:r})=>e.some(h=>(h[r]??"")!=="")),this.jump=a??(r=>ys(this.columns,r)),this.units=Object.fromEntries(
this.columns.map(r=>[r.key,ss(r,e)])),this.sortKey=s??this.columns.find(r=>r.unit!=="text")?.key??"",this.isDescending=this.
columns.find(r=>r.key===this.sortKey)?.unit!=="text",this.text="",this.most=Me,this.at=-1,this.found=e,this.build(o&&e.length>
Dn),i&&!i.startsWith("span-")&&(Pt.set(i,{find:r=>this.find(r),has:r=>e.some(r)}),e.length>Me&&wt.add(()=>this.draw())),
this.draw()}build(t){let e=this.name.replaceAll("_"," ");this.headings=this.columns.map(i=>this.heading(i)),this.body=d(
"tbody"),this.said=d("span",{class:"said",role:"status"}),this.more=d("button",{type:"button",onclick:()=>this.showAll()},
"Show all"),this.input=d("input",{type:"search",placeholder:"Filter rows…","aria-label":`Filter ${this.name}`,oninput:()=>this.
filter(this.input.value),onkeydown:i=>yt(i,this.at,this.found.length,a=>this.go(a))});let s="The rows shown, with full n\
ames and whole numbers",o=d("button",{type:"button",class:"push",title:s,onclick:()=>this.copy()},"Copy as CSV");this.shown=
d("table",{"data-table":this.name,"aria-label":e},d("thead",{},d("tr",{},this.headings)),this.body),this.body.addEventListener(
"click",i=>{let a=i.target.closest("tr");a&&getSelection()?.isCollapsed&&this.act(a.sectionRowIndex)}),this.body.addEventListener(
"keydown",i=>this.key(i)),this.node=d("div",{},d("div",{class:t?"tools":"tools alone"},t?[this.input,this.said,this.more]:
this.said,o),d("div",{class:"table",tabindex:0,role:"region","aria-label":`${e} table`},this.shown))}heading(t){let e=()=>{
this.isDescending=this.sortKey===t.key?!this.isDescending:t.unit!=="text",this.sortKey=t.key,this.at=-1,this.draw()},[s]=this.
units[t.key];return d("th",{class:t.unit==="text"?"text":null,scope:"col"},d("button",{type:"button",title:t.hint,onclick:e},
t.title,q(s)))}draw(){let{columns:t,rows:e,sortKey:s,text:o}=this,i=t.filter(l=>l.unit==="text"),a=y.paper?1/0:this.most;
this.found=o?e.filter(l=>i.some(({key:r})=>se(l[r],o))):e.slice(),s&&this.found.sort((l,r)=>Wn(l[s],r[s])*(this.isDescending?
-1:1)),t.forEach(({key:l},r)=>{l===s?this.headings?.[r].setAttribute("aria-sort",this.isDescending?"descending":"ascendi\
ng"):this.headings?.[r].removeAttribute("aria-sort")}),this.body.replaceChildren(...this.found.slice(0,a).map((l,r)=>this.
row(l,r))),this.more.hidden=this.found.length<=a,this.said.textContent=this.found.length<e.length?`${v.format(this.found.
length)} of ${v.format(e.length)} rows`:this.more.hidden?"":`first ${Me} of ${v.format(e.length)} rows`}row(t,e){let s={
"aria-current":e===this.at?"true":null,class:this.click||E.timeline&&this.jump(t)?"go":null,tabindex:e===Math.max(0,this.
at)?0:-1};return d("tr",s,this.columns.map(o=>Fn(o,t,this.units[o.key])))}filter(t){this.text=t.toLowerCase(),this.at=-1,
this.draw()}showAll(){this.most=1/0,this.draw()}async copy(){let t=v.format(this.found.length);this.said.textContent=await Kt(
ps(this.columns,this.found))?`${t} rows copied`:"copying is not allowed"}go(t,{focus:e=!1}={}){this.at=t,t>=this.most&&(this.
most=1/0),this.draw();let s=this.body.children[t];s.scrollIntoView({block:"nearest"}),e&&s.focus({preventScroll:!0}),this.
said.textContent=`row ${v.format(t+1)} of ${v.format(this.found.length)}`}find(t){return this.rows.some(t)?(this.input.value=
this.text="",this.draw(),this.shown.scrollIntoView({behavior:"instant",block:"center"}),this.go(this.found.findIndex(t),
{focus:!0}),this.body.children[this.at].scrollIntoView({behavior:"instant",block:"center"}),!0):!1}act(t){let e=this.found[t];
if(this.click)return this.click(e);let s=E.timeline&&this.jump(e);s&&_t(s,this.body.children[t])}key(t){let e=t.target.sectionRowIndex;
if(e===void 0)return;if(t.key==="Enter")return this.act(e);let s=Math.min(this.found.length,this.most),i={ArrowDown:e+1,
ArrowUp:e-1,Home:0,End:s-1}[t.key];i!==void 0&&(t.preventDefault(),i>=0&&i<s&&this.go(i,{focus:!0}))}};function Fn(n,t,[
,e]){let s=t[n.key];if(s==null)return d("td",{class:n.unit==="text"?"text nothing":"nothing"},"–");if(n.unit==="text"){
let o=n.code?d("code",{},X(String(s))):String(s),i=n.indent?`${t[n.indent]*14}px`:null,a=n.front?d("bdi",{dir:"ltr"},o):
o;return d("td",{class:n.front?"text front":"text",title:s,"--indent":i},a)}return n.unit==="share"?d("td",{class:"share",
"--share":`${Math.min(100,100*s)}%`},At(s)):n.unit==="count"||s===0?d("td",{},v.format(s)):!(n.unit in bt)||e===1?d("td",
{},F(s)):d("td",{},Math.abs(s/e)<.005?p(s,n.unit):es(s/e))}function Wn(n,t){return n===t?0:n==null?-1:t==null?1:typeof n==
"string"?n.localeCompare(t,"en",{numeric:!0}):n-t}var zn=64,K=class{constructor(t,e,s){this.packed=t,this.tiles=e,this.lanes=s,this.kept=new Map,this.unpacked=null}texts(){
return this.unpacked??=vt(this.packed.texts)}async of(t){let e=this.tiles.tileOf(t),{columns:s,sources:o,targets:i}=await this.
tile(e),a=t-this.tiles.first[e],l=await this.tiles.event(t);for(let r in s)l[r]=s[r][a];return l.gpu=this.lanes[l.lane].
gpu,l.sources=this.related(o,a),l.targets=this.related(i,a),l}tile(t){let e=this.kept.get(t);return e||(e=this.decode(t),
this.kept.set(t,e),this.kept.size>zn&&this.kept.delete([...this.kept.keys()][0])),e}async decode(t){let{packed:e}=this,s=this.
lanes[this.tiles.tiles.lane[t]].gpu?e.gpu:e.cpu,o=r=>Nt(e[r].data[t],e.links,e[r].count[t]),[i,a,l]=await Promise.all([Nt(
e.data[t],s,this.tiles.tiles.count[t]),o("sources"),o("targets")]);return{columns:i,sources:a,targets:l}}related({kind:t,
at:e,other:s},o){let i=[];for(let a=0;a<e.length;a++)e[a]===o&&i.push({kind:this.packed.relations[t[a]],other:s[a]});return i}static first(t,e){
return t.find(s=>s.kind===e&&s.other>=0)?.other??null}};var Ae={caller:["Called by","Calls"],operator:["Launching operator","Device work launched"],launch:["Launch call","Launc\
hes"],forward:["Forward operator","Backward operator"],data:["Reads data of","Data read by"],thread:["Operator before it\
 on the thread","Next operator of the thread"],stream:["Before it on the stream","Next on the stream"],event:["Waits for\
 (event)","Awaited by (event)"],sync:["Waits for the device (sync)","Awaited by the host (sync)"],thread_handoff:["Hande\
d over by thread","Hands over to thread"],comm:["Collective before it","Next collective of the group"],graph:["Graph dep\
endency on","Graph dependency of"]},$=(n,t,e,s)=>({key:n,label:t,value:e,text:s??String(e)}),vs=n=>n.filter(t=>t!==null).
filter(t=>(t.value??-1)!==-1),dt=(n,t,e,s)=>$(n,t,e,p(e,s)),Bt=(n,t,e)=>dt(n,t,e,"ns");function Ce(n,t){return n.map((e,s)=>`\
[${e.join(", ")}]${t[s]?` ${t[s]}`:""}`).join(", ")}function ks(n){if(!n)return[];let{shapes:t,dtypes:e,outputs:s,output_dtypes:o}=n;
return[t.length?$("shapes","Inputs",t,Ce(t,e)):null,s?.length?$("outputs","Outputs",s,Ce(s,o)):null]}function xt(n,t){let e=[];
for(let s=t;s>0;s=n.path_parents[s])e.unshift(n.path_names[s]);return e}function _s(n,t,e){let s=t.modules?.[n.module],o=t.
stacks,i=o?.lines[o.line[n.entry]],a=[];for(let l=o&&n.entry>=0?n.entry:-1;l>=0;l=o.above[l])a.unshift(o.names[o.name[l]]);
return[n.phase>0?$("phase","Phase",t.phases[n.phase]):null,s&&!e.length?$("module","Module",s):null,i?$("source","Source\
 line",i):null,a.length?$("stack","Python stack",a,a.join(" › ")):null]}function xs(n,t,e){let s=n.links[t],o=n.evidence[s];
return o?[$("link",`Link of ${e} to the ET`,s),o.length?$("evidence","Evidence",o,o.join("; ")):null]:[]}function $s(n,t){
let e=xt(t,n.path);return vs([Bt("self_ns","Self time",n.self_ns),n.device_events>0?dt("device_events","Device events",n.
device_events,"count"):null,n.device_ns>0?Bt("device_ns","Device time",n.device_ns):null,...ks(t.signatures[n.signature]),
...Ms(t.generated[n.generated]),e.length?$("modules","Modules",e,e.join(" / ")):null,..._s(n,t,e),$("correlation","Corre\
lation",n.correlation),$("seq","Sequence number",n.seq),$("id","Node id",n.id),$("kineto_event","Kineto event",n.kineto_event),
n.step>=0?$("step","Iteration",t.steps[n.step]):null,...xs(t,n.link,"the operator")])}var Gn="more than the device can: \
its peak, or what is counted, is of something else",bs=(n,t,e)=>$(n,t,e,e>1?`${p(e,"share")} (${Gn})`:p(e,"share")),ws=n=>Array.
isArray(n)&&n.length&&n.every(t=>Number.isInteger(t)&&t>0)?n.join(" × "):null,jt=(n,t=1/0)=>typeof n=="number"&&n>=0&&n<=
t,Hn={grid:["Grid",ws],block:["Block",ws],context:["Context",String],"registers per thread":["Registers per thread",n=>jt(
n,1024)?p(n,"count"):null],"shared memory":["Shared memory of a block",n=>jt(n,2**24)?p(n,"bytes"):null],"blocks per SM":[
"Blocks launched, by number of SMs",n=>jt(n)?F(n):null],"warps per SM":["Warps launched, by number of SMs",n=>jt(n)?F(n):
null],"est. achieved occupancy %":["Occupancy, estimated",n=>jt(n,100)?n?`${F(n)} %`:"< 0.5 %":null]},Un={collective:["C\
ollective"],dtype:["Communicated type"],in_nelems:["Elements in","count"],out_nelems:["Elements out","count"],bytes:["Co\
mmunicated","bytes"],group_size:["Ranks of the group","count"],pg_name:["Group"],pg_desc:["Group is for"],pg_ranks:["Ran\
ks"],src_rank:["From rank"],dst_rank:["To rank"],seq:["Number in the group"],in_split:["Elements to each rank"],out_split:[
"Elements from each rank"],pg_first_rank:["First rank of the group"],inferred_messages:["Messages sent together (inferre\
d)"]};function Kn(n,t,e){return n==="inferred_messages"?t.map(s=>`${s.collective} ${s.dst_rank??s.src_rank??""}`.trim()).
join(", "):Array.isArray(t)?t.join(", "):e?p(t,e):String(t)}function qn(n){return Object.entries(n).map(([t,e])=>{let[s,
o]=Un[t],i=e===null?"":Kn(t,e,o);return e===null||i===""?null:$(`comm.${t}`,s,e,i)})}function Vn(n){return Object.entries(
n).map(([t,e])=>{let[s,o]=Hn[t],i=e===null?null:o(e);return i===null?null:$(t,s,e,i)})}function Xn(n,t){if(!t?.memory_gb_s||
n.bytes<0)return!1;let e=t.cache_bytes??0,s=n.dur*t.memory_gb_s,o=e>0&&n.dur>0&&n.bytes>s&&n.bytes-2*e<=s;return n.bytes>
e&&!o}function Ss(n,t,e,s,o){let i=o[e.device??-1],a=t.dtypes[n.dtype],l=n.flops>=0&&n.dur?n.flops/n.dur*1e9:null,r=n.bytes>=
0&&n.dur?n.bytes/n.dur*1e9:null,h=i?.peaks?.[a]??null,u=Xn(n,i)?i.memory_gb_s*1e9:null,m=n.most_bytes>n.bytes,f=s?xt(t,s.
path):[];return vs([$("category","Category",t.categories[n.category]),s?$("operator","Operator",s.full):null,...s?ks(t.signatures[s.
signature]):[],f.length?$("modules","Modules",f,f.join(" / ")):null,..._s(n,t,f),Bt("delay","Launch delay",n.delay),$("d\
evice","Device",e.device),$("stream","Stream",e.stream),...Ms(t.generated[n.generated]),...Vn(t.configs[n.config]??{}),n.
flops>=0?dt("flops","FLOPs",n.flops,"flop"):null,l===null?null:dt("flops_per_second","Rate",l,"flop/s"),l===null||!h?null:
bs("flops_share",`Share of the ${a} peak`,l/h),n.bytes>=0?dt("bytes",m?"Bytes, at least":"Bytes",n.bytes,"bytes"):null,m?
dt("most_bytes","Bytes, at most",n.most_bytes,"bytes"):null,r===null?null:dt("bytes_per_second","Bandwidth",r,"bytes/s"),
r===null||!u?null:bs("bytes_share","Share of the bandwidth",r/u),...qn(t.comms[n.comm]??{}),$("correlation","Correlation",
n.correlation),$("id","Node id",n.id),$("kineto_event","Kineto event",n.kineto_event),n.step>=0?$("step","Iteration",t.steps[n.
step]):null,n.reason>0?$("reason","Not attached",t.reasons[n.reason]):null,n.repeated>=0?$("repeated","Operator, by repe\
tition in a later iteration",t.repeated[n.repeated]):null,...xs(t,n.link,"its operator"),...Yn(n,t)])}function Ms(n){if(!n)
return[];let{region:t,backward:e,handle:s,nodes:o=[],lines:i}=n,a=t?`${t}${e?", backward":""}${s===void 0?"":`, call ${s}`}`:
"";return[$("generated","Compiled as",n.name),a?$("region","Compiled region",a):null,o.length?$("nodes",o.length>1?"Fuse\
d of":"Made of",o,o.join(", ")):null,i.length>1?$("lines","Source lines (fused)",i,i.join("; ")):null,n.kernel_file?$("k\
ernel_file","Kernel file",n.kernel_file):null,n.kernel_hash?$("kernel_hash","Kernel hash",n.kernel_hash):null,n.kernel_kwargs?
$("kernel_kwargs","Kernel constants",n.kernel_kwargs):null]}function Yn(n,t){let e=t.captured[n.captured];if(!e)return[];
let s=t.replays[n.replay],o=t.graphs[s?.graph],i=Ce(e.shapes,e.dtypes);return[$("captured_by","Captured by",e.name),i?$(
"captured_shapes","Captured inputs",e.shapes,i):null,e.modules.length?$("captured_modules","Captured in",e.modules,e.modules.
join(" / ")):null,$("captured_link","Link to the capture",t.links[n.captured_link]),s?.evidence.length?$("captured_evide\
nce","Evidence for the graph",s.evidence,s.evidence.join(", ")):null,s?.candidates>1?$("candidates","Graphs that fit equ\
ally",s.candidates):null,o?$("graph","Graph",o.index,Jn(o)):null]}function Jn({index:n,file:t,batch_size:e}){return`${n}\
 of ${t}${e===null?"":`, batch size ${e}`}`}function Zn(n,t){let{stacks:e}=n;return t>=0&&e?.lines[e.line[t]]?.replace(/ \(.*\)$/s,"")||""}var Os=n=>n?.shapes.map(t=>`\
[${t.join(",")}]`).join(",")??"";async function ie(n){let t=n.gpu?K.first(n.sources,"operator"):n.number;return t===null?
null:ht().details.of(t)}async function Cs(n){let{data:t,details:e}=ht(),s=n,o=n;for(;o;){let i=K.first(o.sources,"caller");
o=i===null?null:await e.of(i),o&&t.kinds[o.kind].name==="Operator"&&(s=o)}return s}var $t=(n,t)=>({gpu:t,has:(e,s,o)=>Zn(
o,e.entry[s])===n});function As(n){let t=/ × \d+/.test(n)?st(n.split(" / ")):null;return{has:({module:e},s,o)=>{let i=o.
modules[e[s]]??"";return t===null?i===n:st(i.split(" / "))===t}}}function ut(n,t){let e=new Set(n);return{gpu:t,has:({id:s},o)=>e.
has(s[o])}}function Es(n,t){let{tree:e,analysis:s}=t;if(!e.total_ns)return x("breakdown","Device time",null,k(null,null,tt("The tra\
ce has no GPU events.")));let o=d("div"),i=n.gpu_kinds;return D(o,460,()=>({tooltip:P(a=>{let l=a.treePathInfo.slice(1).
map(h=>h.name),r=a.data.of;return r?N(W(r.name,200),[l.length>1?["in",W(l.slice(0,-1).join(" › "),140)]:null,r.kind===
void 0?null:[r.level,i[r.kind].name],["time",p(r.total_ns,"ns")],["share",p(r.total_ns/e.total_ns,"share")],["GPU events",
p(r.count,"count")]]):null}),series:[{type:"treemap",data:(e.children??[]).map(a=>Ls(a,i)),left:0,right:0,top:30,bottom:0,
leafDepth:to(e),roam:!1,nodeClick:"zoomToNode",drillDownIcon:"",animationDuration:y.paper?0:200,visibleMin:20,breadcrumb:{
top:0,left:0,height:22,itemStyle:{color:y.value("sunk"),borderColor:y.value("line"),textStyle:{color:y.value("text")}},emphasis:{
itemStyle:{color:y.value("accent-soft")}}},name:"All device time",label:{fontSize:12,padding:[3,5],lineHeight:15,overflow:"\
truncate",formatter:a=>`${W(a.name,70)}
${p(a.value,"ns")}`},upperLabel:{show:!0,height:20,color:y.value("text"),fontSize:12,padding:[0,6],formatter:a=>`${W(a.name,
80)}  ${p(a.value/e.total_ns,"share")}`},itemStyle:{gapWidth:2,borderWidth:0,borderColor:y.value("card")},levels:[{itemStyle:{
gapWidth:3},upperLabel:{show:!1}},...[1,2,3,4,5,6,7,8].map(()=>({itemStyle:{gapWidth:2,borderWidth:2,borderColor:y.value(
"sunk")}}))]}]})),x("breakdown","Device time","By module, operator and kernel. A click goes into a part, the path above \
leads back.",k(null,null,I(ne(Ee(e),i)),o),S("By operator and kernel",H(t,"breakdown"),[c.code("kernel","Kernel"),c.count(
"count","Count"),c.ns("total_ns","Total"),c.ns("mean_ns","Mean"),c.share("share","Share"),c.code("op","Operator"),c.text(
"modules","In",{front:!0}),c.text("shapes","Shapes"),c.count("stream","Stream")],s.breakdown,{sort:"total_ns",name:"brea\
kdown",jump:Qn}))}var Qn=({device:n,stream:t,kernel:e,op:s,repeated:o,modules:i,shapes:a})=>({gpu:!0,device:n,stream:t,name:e,
op:o?"":s,fits:i||a?async(l,r)=>{let h=await ie(l),u=h&&await Cs(h);if(!u||Os(r.signatures[u.signature])!==a)return!1;let m=K.
first(u.sources,"forward");return[u,m===null?null:await ht().details.of(m)].some(g=>g&&xt(r,g.path).join(" / ")===i)}:null});
function to(n){let t=n.children??[],e=1;for(;e<6&&t.length<24;)t=t.flatMap(s=>s.children??[s]),e+=1;return e}function Ee(n){
return n.children?n.children.flatMap(Ee):[n]}function Ls(n,t){let e=n.children?.map(a=>Ls(a,t)),s=new Map;for(let a of Ee(
n))s.set(a.kind,(s.get(a.kind)??0)+a.total_ns);let o=[...s].reduce((a,l)=>l[1]>a[1]?l:a)[0],i=o===void 0?"faint":t[o].color;
return{name:n.name,value:n.total_ns,of:n,children:e,itemStyle:{color:U(i)},label:{color:et(y.color(i))}}}function Ts(n,t){let e=t.analysis.communication;if(!e.length)return null;let s=e.filter(l=>l.bytes&&l.algorithm_bandwidth),
o=d("div"),i=[...new Set(s.map(l=>l.collective||"unnamed"))],a=Math.max(...s.map(l=>l.total_ns));return s.length&&D(o,270,
()=>({grid:{left:80,right:16,top:14,bottom:44},tooltip:P(l=>{let r=l.data.row;return N(r.collective||"unnamed",[["messag\
e",p(r.bytes,"bytes")],["element type",r.dtype||"–"],["group",r.group||"–"],["ranks",r.group_size?String(r.group_size):
"–"],["kernels",p(r.count,"count")],["mean duration",p(r.mean_ns,"ns")],["algorithm bandwidth",p(r.algorithm_bandwidth,
"bytes/s")],["bus bandwidth",p(r.bus_bandwidth,"bytes/s")]])}),xAxis:C({type:"log",name:"message size",nameLocation:"mid\
dle",nameGap:28,unit:"bytes"}),yAxis:C({type:"log",unit:"bytes/s"}),series:i.map((l,r)=>({name:l,type:"scatter",symbol:ct[Y(
r)],itemStyle:{color:y.color(r),opacity:.8,borderColor:y.value("card")},symbolSize:(h,u)=>8+20*Math.sqrt(u.data.row.total_ns/
a),data:s.filter(h=>(h.collective||"unnamed")===l).map(h=>({value:[h.bytes,h.bus_bandwidth??h.algorithm_bandwidth],row:h}))}))})),
x("communication","Communication","Kernels of collectives; their durations hold the time that a rank waits in them for o\
thers, so bandwidths are what the job got, not what the links could give.",s.length?k("Bus bandwidth by message size","a\
lgorithm bandwidth where the number of ranks is unknown",I(i.map((l,r)=>({name:l,color:r}))),o):null,S("Collectives",H(t,
"communication"),[c.text("collective","Collective"),c.text("dtype","Type"),c.text("group","Group"),c.count("group_size",
"Ranks"),c.bytes("bytes","Message"),c.count("count","Count"),c.ns("total_ns","Total"),c.ns("mean_ns","Mean"),c.ns("min_n\
s","Least",{like:"mean_ns"}),c.bandwidth("algorithm_bandwidth","Algorithm"),c.bandwidth("bus_bandwidth","Bus",{like:"alg\
orithm_bandwidth"})],e,{sort:"total_ns",name:"communication",jump:eo}))}var eo=({collective:n,dtype:t,bytes:e})=>({gpu:!0,
has:(s,o,i)=>{let a=i.comms[s.comm[o]];return!!a&&(a.collective??"")===n&&(a.dtype??"").toLowerCase()===t&&so(a)===e},orElse:{
gpu:!0,has:(s,o)=>s.comm[o]>=0}});function so({bytes:n,in_nelems:t,out_nelems:e}){let s=t||e;return n===null||!s?n:Math.
floor(n/s)*Math.max(t??0,e??0)}function Le(n){let t=n.steps??[];A("step-pick").hidden=!t.length,A("step").replaceChildren(d("option",{value:""},"all"),
...t.map((e,s)=>e.data?d("option",{value:s},e.name):d("option",{value:s,disabled:!0,title:"Not on this page; make one wi\
th --steps"},e.name)))}var Rt=({step:n,span_ns:t})=>n?{min:n.from,max:n.to}:{min:0,max:t};function nt(n){let{report:t}=E,
e=t.ranks[A("rank").value].steps?.[A("step").value]?.number;A("rank").value=n,Le(t.ranks[n]);let s=t.ranks[n].steps?.findIndex(
o=>o.number===e&&o.data)??-1;return A("step").value=s<0?"":s,E.draw(n,s<0?null:s)}async function Ps(n,{number:t}){let e=n.
ranks.map(async s=>{let o=s.steps?.find(i=>i.number===t&&i.data);return o?{...s,...o.unpacked??=await vt(o.data??""),step:o}:
s});return{...n,ranks:await Promise.all(e)}}var no={measured:"the trace shows the problem and its cost",likely:"the trace shows the symptom, whose usual cause this \
is",possible:"the trace shows what often goes with the problem"};function ae(n,t){let{findings:e}=n;if(!e)return null;let s=e.
found.filter(({where:l})=>!t.step||!l.step||l.step===t.step.name),o=s.slice(0,e.first||s.length),i=s.slice(o.length),a=i.
length?d("details",{class:"more"},d("summary",{},`${i.length} with less to gain`),i.map((l,r)=>Ns(n,l,o.length+r))):null;
return x("findings","Findings",oo(e,s),o.map((l,r)=>Ns(n,l,r)),a,lt("notes",e.notes))}function oo({found:n,none_reason:t,
looked_for:e,base_error:s,makespan_ns:o,together:i},a){let l=s?`The replay that prices them is off by ${os(s.makespan)}`:
"",r=i?`the first ${Math.min(3,n.filter(m=>m.gain).length)} together gain ${Ne(i,o)}`:"",h=a.some(m=>m.gain)?"largest ga\
in":"greatest cost";return`${[t?t[0].toUpperCase()+t.slice(1):`${a.length} of ${e.length} things looked for, the ${h} fi\
rst`,r].filter(Boolean).join("; ")}. ${l?`${l}.`:""}`}function Ne({ns:n,low_ns:t,high_ns:e},s){let o=s?`, ${p(n/s,"share")}\
 of ${p(s,"ns")}`:"";return`${p(n,"ns")} (${p(t,"ns")} to ${p(e,"ns")})${o}`}function Ns(n,t,e){let{id:s,title:o,evidence:i,
certainty:a,advice:l,check:r,command:h,cost_ns:u,gain:m,where:f}=t,g=n.findings?.makespan_ns??null,b=m?.replayed_ns??null,
M=d("article",{class:"card finding",id:`finding-${e+1}`,"data-finding":s,"aria-labelledby":`finding-${e+1}-title`}),w=!!n.
difference,_=w?null:z=>it=>lo(M,n,t,z,it.currentTarget),O=Te([w?null:m?["Gain",`${Ne(m,g)}${m.unexplained?`; the replay \
does not explain ${p(m.unexplained,"share")}`:""}`]:["Gain","not replayed"],u===null?null:["At stake",p(u,"ns")],["Certa\
inty",`${a}: ${no[a]??""}`]]),L=i.every(z=>z.command===i[0].command)?i[0].command:null,B=i.map(({text:z,value:it,unit:Ht,
command:An})=>d("li",{},z,it===null?null:d("b",{},` ${ns(it,Ht)}`),L===null?[" ",Pe(An)]:null)),ot=ro(t,_),T=Te([...O,ot&&
["Where",ot]]),R=Te([["Evidence",d("div",{},d("ul",{class:"proof"},B),L?Pe(L):null)],["Try",l],["Check",r],h?["What if",
d("div",{},Pe(h),b?q(` prints ${p(b,"ns")}, with what recording cost`):null)]:null]);return M.append(d("header",{},d("sp\
an",{class:"rank"},String(e+1)),d("h3",{id:`finding-${e+1}-title`},o),(_?ao(f):[]).map(([z,it],Ht)=>d("button",{type:"bu\
tton",class:Ht?"other":"go",title:`${z}, in the timeline`,onclick:_?.(it)},Ht?z:"Show in the timeline"))),m?io(m,g):"",d(
"div",{class:"halves"},gt(T),gt(R))),M}var Te=n=>n.filter(t=>t!==null&&t!=="");function io({ns:n,low_ns:t,high_ns:e},s){
let o=i=>`${Math.max(0,Math.min(100,100*i/(s||1))).toFixed(2)}%`;return d("div",{class:"gain",role:"img","aria-label":`G\
ain: ${Ne({ns:n,low_ns:t,high_ns:e},s)}`,"--gain":o(n),"--low":o(t),"--high":o(e)},d("i",{}),d("s",{}))}function Pe(n){let t=d(
"button",{type:"button",class:"copy","aria-label":`Copy: ${n}`,title:"Copy the command"},"Copy");return t.addEventListener(
"click",async()=>{t.textContent=await Kt(n)?"Copied":"Not allowed"}),d("span",{class:"command"},d("code",{},n),t)}function ao({
kernel:n,operator:t,stream:e,rows:s,start_ns:o,end_ns:i}){let a=n?{gpu:!0,name:n}:t?{gpu:!1,name:t}:void 0,l=o!==void 0&&
i!==void 0?{from:o,to:i}:null,r=[];return s?.length&&r.push(["Longest event",{...ut(s),orElse:a??l}]),l&&r.push(["Its ti\
me",l]),n||t||e!==void 0?r:r.reverse()}function ro({where:n},t){let{source:e,module:s,operator:o,kernel:i,phase:a,stream:l,
step:r,rank:h,rows:u}=n,m=[];e&&m.push(["line",e,{...$t(e),orElse:ut(u??[])}]),s&&m.push(["module",s.replaceAll(" / "," \
› "),As(s)]),o&&m.push(["operator",o,{...ut(u??[],!1),name:o,orElse:{gpu:!1,name:o}}]),i&&m.push(["kernel",X(i),{...ut(
u??[],!0),orElse:{gpu:!0,name:i}}]);let f=[a,r,l===void 0?null:`stream ${l}`,h===void 0?null:`rank ${h}`].filter(Boolean);
return!m.length&&!f.length?null:d("span",{class:"chain"},m.map(([g,b,M])=>{let w=[q(g),d("bdi",{dir:"ltr"},b)];return t?
d("button",{type:"button","data-part":g,title:`${g}: ${b}`,onclick:t(M)},w):d("span",{"data-part":g},w)}),f.length?d("sp\
an",{class:"said"},f.join(" · ")):null)}async function lo(n,t,{where:e},s,o){let i=t.ranks.findIndex(a=>a.rank===e.rank);
return i>=0&&t.ranks.length>1&&Number(A("rank").value)!==i&&(await nt(i),o=document.querySelector(`#${n.id} .go`)),_t(s,
o)}var co=.03,mt=n=>n.difference;function ho(n){let t=mt(n),e=t.per_iteration?"an iteration":"whole trace",s=(o,i)=>o?`${(i/
o).toFixed(2)} × A`:"";return x("overview","Overview",t.per_iteration?`Means of an iteration: ${t.iterations_a} of A, ${t.
iterations_b} of B.`:"The whole traces are compared.",lt("warnings",t.damage),d("div",{class:"tiles"},j(`Device time, ${e}\
: A`,p(t.total_a,"ns"),t.a),j(`Device time, ${e}: B`,p(t.total_b,"ns"),`${t.b} · ${s(t.total_a,t.total_b)}`),j(`Length,\
 ${e}: A`,p(t.latency_a,"ns"),t.device_a),j(`Length, ${e}: B`,p(t.latency_b,"ns"),`${t.device_b} · ${s(t.latency_a,t.latency_b)}`)),
mo(t))}function uo(n){let{lines:t}=mt(n);if(!t.length)return null;let e=t.some(s=>s.a_device_ns||s.b_device_ns)?"device_\
ns":"host_ns";return x("lines","Source lines","Lines that call other operators come first; a line that only moved in its\
 file is one row.",S(null,null,[c.code("place","Line"),c.text("what","What is new"),c.ns("change_ns","Change"),c.ns(`a_${e}`,
"A"),c.ns(`b_${e}`,"B"),c.count("a_calls","Calls in A"),c.count("b_calls","Calls in B")],t,{sort:"",name:"lines"}))}function mo(n){
let t=(o,i)=>o.slice(0,10).map(a=>n.ops.find(l=>l.name===a)).filter(a=>a!==void 0).filter(a=>a.change_ns*i>0),e=[c.code(
"name","Operator"),c.ns("change_ns","Change"),c.other("ratio","B / A","×")],s=(o,i,a)=>k(o,null,i.length?G(e,i,{sort:"",
filter:!1,name:a}):tt("None."));return J([6,6],s("Slower in B, the most first",t(n.losses,1),"slower"),s("Faster in B, t\
he most first",t(n.gains,-1),"faster"))}function po(n){let{a:t,b:e}=mt(n).iteration_list;if(!t.length||!e.length)return null;
let s=d("div"),o=["A","B"],i=[t,e],a=Math.max(t.length,e.length);return D(s,240,()=>({grid:{left:74,right:20,top:14,bottom:40},
tooltip:P(l=>N(`iteration ${l[0].dataIndex}`,l.map(r=>[r,i[o.indexOf(r.seriesName)][r.dataIndex]]).filter(([,r])=>r).map(
([r,h])=>[`${r.seriesName} (${h.name})`,p(h.latency_ns,"ns")])),{trigger:"axis"}),xAxis:C({type:"category",data:Array.from(
{length:a},(l,r)=>String(r))}),yAxis:C({type:"value",min:0,unit:"ns"}),series:i.map((l,r)=>({name:o[r],type:"bar",barMaxWidth:26,
itemStyle:{color:U(r)},data:l.map(h=>h.latency_ns)}))})),x("iterations","Iterations","Each trace's iterations in order, \
by their length.",k(null,null,s,I(o.map((l,r)=>({name:l,color:r})))),fo(mt(n).phases))}function fo(n){let t=n.map(({phase:e,
a:s,b:o,ratio:i})=>({phase:e,a_steps:s?.steps,a_ns:s?.mean_latency_ns,a_rate:s?.tokens_per_second,b_steps:o?.steps,b_ns:o?.
mean_latency_ns,b_rate:o?.tokens_per_second,ratio:i}));return S("Serving steps by phase","mean latency of a step, new to\
kens per second",[c.text("phase","Phase"),c.count("a_steps","A steps"),c.ns("a_ns","A latency"),c.other("a_rate","A toke\
ns/s"),c.count("b_steps","B steps"),c.ns("b_ns","B latency",{like:"a_ns"}),c.other("b_rate","B tokens/s"),c.other("ratio",
"B / A","×")],t,{sort:"",filter:!1,name:"serving_phases"})}function go(n){let t=mt(n);if(!t.paths.length)return null;let e=t.
paths.some(r=>r.a?.device_ns||r.b?.device_ns),s=e?"device_ns":"host_ns",o=e?"change_launched_ns":"change_self_ns",i=e?"c\
hange_device_ns":"change_host_ns",a=e?"launched_ns":"self_ns",l=t.paths.filter(r=>r[o]).map(r=>({...r,a:r.a?.[a],b:r.b?.[a]}));
return x("paths","Call tree",`The same operator below the same callers in both traces, by ${e?"the device time that it l\
aunches":"its host time"}.`,k("Where it changes",e?"device time launched by the call itself":"host time of the call itse\
lf",G([c.code("path","Call path"),c.ns("a","A"),c.ns("b","B",{like:"a"}),c.ns(o,"Change")],l,{sort:o,name:"paths"})),k("\
The tree",t.paths_left_out?`${v.format(t.paths_left_out)} smaller paths are left out`:null,yo(t.paths,s,i)))}function yo(n,t,e){
let s=d("div",{class:"paths"}),o=[s],i=co*Math.max(...n.map(a=>Math.abs(a[e])));return n.forEach((a,l)=>{let r=(n[l+1]?.
depth??0)<=a.depth,h=[d("code",{title:a.path},W(a.name,70)),` ${p(a.a?.[t],"ns")} → ${p(a.b?.[t],"ns")} `,d("b",{},`${a[e]>
0?"+":""}${p(a[e],"ns")}`)];o.length=a.depth+1;let u=r?d("div",{},h):d("details",{open:Math.abs(a[e])>=i},d("summary",{},
h));a.depth&&(u.style.marginLeft="18px"),(o[a.depth]??s).append(u),o[a.depth+1]=u}),s}function bo(n){let t=mt(n),e=a=>a.
map(l=>({...l,a_count:l.a?.count,a_ns:l.a?.total_ns,b_count:l.b?.count,b_ns:l.b?.total_ns})),s=[c.code("name","Name"),c.
other("a_count","A count","number"),c.ns("a_ns","A"),c.other("b_count","B count","number"),c.ns("b_ns","B",{like:"a_ns"}),
c.ns("change_ns","Change",{like:"a_ns"}),c.other("ratio","B / A","×")],o=a=>t.left_out[a]?`${v.format(t.left_out[a])} m\
ore in --json`:null;t.host_ops&&s.push(c.count("rank","Most on rank"),c.ns("rank_change_ns","Change there",{like:"a_ns"}));
let i=t.host_ops?.length?k("Host",o("host_ops"),G(s,e(t.host_ops),{sort:"change_ns",name:"host_ops"})):null;return x("ta\
bles","Operators and kernels","Matched by name; a dash where one trace has none.",i,k("Operators",o("ops"),G(s,e(t.ops),
{sort:"change_ns",name:"ops"})),k("Kernels",o("kernels"),G(s,e(t.kernels),{sort:"change_ns",name:"diff_kernels"})))}function wo(n){
let{ranks:t,only_a:e,only_b:s,per_iteration:o}=mt(n);if(!t)return null;let i=[["A",e],["B",s]].filter(([,l])=>l.length).
map(([l,r])=>`${v.format(r.length)} ranks only in ${l} are left out`),a=[c.count("rank","Rank"),c.ns("a_ns","A"),c.ns("b\
_ns","B",{like:"a_ns"}),c.ns("change_ns","Change",{like:"a_ns"}),c.other("ratio","B / A","×"),c.ns("a_device_ns","Devic\
e, A"),c.ns("b_device_ns","Device, B",{like:"a_device_ns"}),c.ns("a_communication_ns","Communication, A"),c.ns("b_commun\
ication_ns","Communication, B")];return x("ranks","Ranks",o?"An iteration of each rank, on average.":"The whole trace of\
 each rank.",k(null,i.join("; "),G(a,t,{sort:"change_ns",name:"diff_ranks"})))}var Is=[ae,ho,wo,uo,po,go,bo];var js=20,vo=2,Bs=3,Ie=[{name:"Operator",color:0},{name:"Annotation and module",color:10},{name:"Runtime call",color:9},
{name:"Thread",color:8},{name:"Python function",color:1}];function ko({names:n,name:t,parent:e,kind:s,count:o,total:i}){
let a={name:"All threads",kind:Bs,count:0,total:0,own:0,parent:null,children:[],level:0},l=[];return t.forEach((r,h)=>{let u=e[h]<
0?a:l[e[h]],m={count:o[h],total:i[h],own:i[h]},f={name:n[r],kind:s[h],...m,parent:u,children:[],level:u.level+1};l.push(
f),u.children.push(f),u.own-=f.total}),a.total=a.children.reduce((r,h)=>r+h.total,0),a.own=0,a}var je=class{constructor(t){
this.root=ko(t),this.shown=this.current=this.root.children.length===1?this.root.children[0]:this.root,this.text="",this.
at=-1,this.width=0,this.hits=[],this.boxes=d("div",{class:"flame",role:"tree","aria-label":"Host time by call tree"}),this.
picked=d("div",{class:"picked",role:"status"}),this.said=d("span",{class:"said",role:"status"}),this.input=d("input",{type:"\
search",placeholder:"Search names…","aria-label":"Search the flame graph",oninput:()=>this.search(this.input.value),onkeydown:e=>yt(
e,this.at,this.hits.length,s=>this.go(s))}),this.node=d("div",{},d("div",{class:"tools"},this.input,this.said,d("button",
{type:"button",class:"push",onclick:()=>this.zoom(this.root)},"Whole")),this.boxes,this.picked),this.boxes.addEventListener(
"keydown",e=>this.key(e)),new ResizeObserver(()=>this.width!==this.boxes.clientWidth&&this.draw()).observe(this.boxes)}search(t){
this.text=t.toLowerCase(),this.hits=[];let e=s=>{s.name.toLowerCase().includes(this.text)&&this.hits.push(s),s.children.
forEach(e)};this.text&&this.root.children.forEach(e),this.hits.sort((s,o)=>o.total-s.total),this.at=-1,this.said.textContent=
this.text?`${v.format(this.hits.length)} places`:"",this.draw()}go(t){this.at=t,this.current=this.hits[t];let{current:e}=this;
this.zoom(e.children.length||!e.parent?e:e.parent),this.said.textContent=`${this.at+1} of ${v.format(this.hits.length)} \
places`}zoom(t){this.shown=t,this.visible(this.current)||(this.current=t),this.draw()}visible(t){for(let e=t;e;e=e.parent)
if(e===this.shown)return!0;for(let e=this.shown;e;e=e.parent)if(e===t)return!0;return!1}draw(){this.width=this.boxes.clientWidth;
let t=[],e=[];for(let i=this.shown.parent;i;i=i.parent)e.unshift(i);for(let i of e)t.push(this.box(i,0,this.width));let s=this.
shown.level,o=(i,a,l)=>{t.push(this.box(i,a,l)),s=Math.max(s,i.level);for(let r of i.children){let h=r.total/(i.total||1)*
l;h>=vo&&o(r,a,h),a+=h}};o(this.shown,0,this.width),this.boxes.style.height=`${(s+1)*js}px`,this.boxes.replaceChildren(...t),
this.announce(this.current)}box(t,e,s){let o=this.text&&!this.hits.includes(t),i=d("div",{class:`box${o?" faded":""}${t===
this.current?" at":""}`,role:"treeitem",tabindex:t===this.current?0:-1,"aria-level":t.level+1,"aria-label":this.describe(
t),title:this.describe(t),onclick:()=>this.pick(t,!0),onfocus:()=>this.announce(t),"--look":Xt(Ie[t.kind].color),"--ink":et(
y.color(Ie[t.kind].color))},s>24?X(t.name):"");return i.style.left=`${e}px`,i.style.width=`${Math.max(1,s-1)}px`,i.style.
top=`${t.level*js}px`,t.box=i,i}describe(t){let e=p(t.total/(this.root.total||1),"share"),s=t.kind===Bs?"":`, ${p(t.own,
"ns")} itself, ${p(t.count,"count")} calls`;return`${t.name}: ${p(t.total,"ns")} (${e})${s}`}announce(t){let e=[];for(let s=t.
parent;s&&s.parent;s=s.parent)e.unshift(X(s.name));this.picked.replaceChildren(d("code",{},X(t.name)),` ${this.describe(
t).slice(t.name.length+1)}`,e.length?` · in ${e.join(" › ")}`:"")}pick(t,e){this.current=t,e?this.zoom(t):this.draw(),
t.box?.focus({preventScroll:!0}),t.box?.scrollIntoView({block:"nearest"})}key(t){let e=this.current,s=e.parent?.children.
filter(i=>i.box?.isConnected)??[e],o={ArrowDown:()=>e.children.find(i=>i.box?.isConnected),ArrowUp:()=>e.parent,ArrowLeft:()=>s[s.
indexOf(e)-1],ArrowRight:()=>s[s.indexOf(e)+1],Home:()=>this.root}[t.key];if(t.key==="Enter"||t.key===" ")this.pick(e,!0);else if(t.
key==="Escape")this.zoom(this.root);else if(o){let i=o();i&&this.pick(i,!this.visible(i))}else return;t.preventDefault()}};
function Rs(n,t){if(!t.flame.name.length)return null;let e=new je(t.flame),s=t.flame.left_out,o=s?d("span",{},`${v.format(
s)} smaller boxes are left out`):null;return Qt(e),x("flame","Host time","The call tree of each thread, calls of one nam\
e below one caller together; the width is their time. A click fills the width with a box; arrow keys move, Enter zooms.",
k(null,null,I(Ie.filter((i,a)=>t.flame.kind.includes(a)),{more:o}),e.node))}var Ds=24;function Z(n,{unit:t="ns",click:e=null}={}){let s=[...new Map(n.flatMap(m=>m.parts.filter(f=>f.ns>0).map(f=>[f.
name,f.color])))],o=d("div"),i=n.length>24?18:30,a=n.slice().reverse(),l=Math.max(...n.map(m=>m.whole))||1,r=n.some(m=>m.
name);D(o,Math.max(34,n.length*i)+(r?26:0),()=>({grid:{left:0,right:8,top:0,bottom:0,outerBoundsMode:"same",outerBounds:{
left:0,right:8,top:0,bottom:0}},tooltip:P(m=>{let f=a[m.dataIndex],g=f.parts.find(b=>b.name===m.seriesName);return g?N(f.
name?`${f.name}: ${g.name}`:g.name,[[t==="ns"?"time":"size",p(g.ns,t)],["share",p(g.ns/(f.whole||1),"share")]]):null}),xAxis:C(
{type:"value",max:l,show:r,splitNumber:6,splitLine:{show:r,lineStyle:{color:y.value("line")}},unit:t,axisLabel:{hideOverlap:!0}}),
yAxis:C({type:"category",data:a.map(m=>W(m.name,26)),show:r,axisLine:{show:!1}}),series:s.map(([m,f])=>({name:m,type:"ba\
r",stack:"all",barWidth:i<Ds?i-5:i-10,barMinHeight:0,itemStyle:{color:U(f),borderColor:y.value("card"),borderWidth:.5},data:a.
map(g=>g.parts.find(b=>b.name===m)?.ns??0),label:{show:i>=Ds,color:f==="line"?y.value("muted"):et(y.color(f)),fontSize:11.5,
overflow:"truncate",formatter:g=>g.value/l>.06?`${At(g.value/(a[g.dataIndex].whole||1))} %`:""}}))}),m=>{e&&m.on("click",
f=>e(a.length-1-f.dataIndex))});let h=m=>` ${p(n[0].parts.find(f=>f.name===m)?.ns,t)}`,u=s.map(([m,f])=>({name:n.length===
1?m+h(m):m,color:f}));return d("div",{},o,I(u))}var _o="From the device's first GPU event to the end of its last one",xo="already launched",Fs=[c.ns("busy_ns","Busy"),c.
ns("idle_ns","Idle"),c.share("busy_share","Busy"),c.share("busy_share_of_gpu_span","of GPU span",{hint:_o})];function Ws(n,t){
let{streams:e,device_use:s,iteration_list:o}=t.analysis;if(!e.length)return null;if(!s.length)return $o(e);let i=s.length>
1,a=[...e].sort((r,h)=>h.busy_ns-r.busy_ns).slice(0,12),l=t.gaps.map(r=>({...r,cause:So(r)}));return x("idle","Idle and \
overlap","How much of the time each stream works, what runs at the same time, and where the longest gaps are.",J([6,6],k(
"Streams",e.length>a.length?`the ${a.length} busiest of ${e.length}`:null,Z(a.map(r=>({name:Re(r,i),whole:r.window_ns,parts:[
{name:"Busy",color:0,ns:r.busy_ns},{name:"Idle",color:"line",ns:r.idle_ns}]})))),o.length?Mo(t):null),S("Devices",null,[
c.count("device","Device"),c.ns("window_ns","Window"),...Fs,c.ns("overlapped_ns","Two streams or more"),c.ns("compute_ns",
"Computing"),c.ns("copy_ns","Copying"),c.ns("communication_ns","Communicating"),c.ns("exposed_communication_ns","of it e\
xposed",{hint:"With no computing kernel beside it"})],s,{sort:"busy_ns",filter:!1,name:"device_use",jump:Be}),S("Streams\
 in numbers",null,[i?c.count("device","Device"):null,c.count("stream","Stream"),c.count("events","Events"),c.ns("total_n\
s","Sum of events"),...Fs],e,{sort:"busy_ns",name:"streams",jump:Be}),S("Longest gaps",null,[c.ns("idle_ns","Idle"),c.ns(
"start","At"),c.text("cause","Cause",{hint:"Whether the next event had been launched when the gap began"}),c.ns("launch_\
ns","Launched after",{hint:"From the gap's start to the launch of the event that ends it"}),c.code("host","Host meanwhil\
e",{hint:"What takes most of the gap by itself on the launching thread: an operator, a runtime call, or neither"}),c.ns(
"host_ns","for",{like:"idle_ns"}),c.code("launched_by","Next operator"),c.code("source","Next line",{front:!0}),c.code("\
after","Next event"),c.code("before","Event before")],l,{sort:"idle_ns",name:"gaps",jump:r=>({from:r.start,to:r.start+r.
idle_ns})}))}function $o(n){return x("idle","Streams","Sums of durations; no start times were recorded, so that busy and\
 idle time are not known.",S("Streams in numbers",null,[c.count("device","Device"),c.count("stream","Stream"),c.count("e\
vents","Events"),c.ns("total_ns","Sum of events")],n,{sort:"total_ns",name:"streams",jump:Be}))}function So({before:n,after:t,
launch_ns:e}){if(!t)return"no event any more";let s=e===null?"launch not in the trace":e>0?"host launched late":xo;return n?
s:`no event yet: ${s}`}var Be=({device:n,stream:t})=>({gpu:!0,device:n,stream:t});function Re({device:n,stream:t},e){return e?
`GPU ${n} · stream ${t}`:`stream ${t}`}function Mo(n){let t=n.analysis.iteration_list,e=d("div"),s=[{name:"GPU busy",color:0,
value:o=>o.gpu_ns},{name:"GPU idle",color:"line",value:o=>o.latency_ns-o.gpu_ns}];return D(e,210,()=>({grid:{left:62,right:10,
top:12,bottom:26},tooltip:P(o=>{let i=t[o.dataIndex];return N(i.name,[["length",p(i.latency_ns,"ns")],["a device busy",p(
i.gpu_ns,"ns")],["share",p(i.gpu_ns/(i.latency_ns||1),"share")]])}),xAxis:C({type:"category",data:t.map(o=>o.name),splitLine:{
show:!1},axisLabel:{hideOverlap:!0,formatter:o=>o.replace("ProfilerStep#","step ")}}),yAxis:C({type:"value",splitNumber:4,
unit:"ns"}),series:s.map(({name:o,color:i,value:a})=>({name:o,type:"bar",stack:"all",barMaxWidth:46,itemStyle:{color:U(i)},
data:t.map(a)}))})),k("Iterations",`mean ${p(n.analysis.iterations.mean_latency_ns,"ns")}`,e,I(s))}var Oo=260,zs=0,Gs=1;function Co(n,t,e){let s=d("div",{"aria-label":`${t.title} of each rank`}),o=new Set(t.outliers),i=a=>n.
numbers.map((l,r)=>[l,t.values[r]]).filter(([l,r])=>r!==null&&o.has(l)===a);return D(s,Oo,()=>({grid:{left:0,right:12,top:12,
bottom:0,outerBoundsMode:"same",outerBounds:{left:0,right:12,top:12,bottom:0}},tooltip:P(a=>N(`rank ${a.value[0]}`,[[t.title,
p(a.value[1],"ns")]])),xAxis:C({type:"value",min:"dataMin",max:"dataMax",minInterval:1,splitLine:{show:!1}}),yAxis:C({type:"\
value",scale:!0,splitNumber:4,unit:"ns"}),series:[{name:"Ranks",type:"scatter",symbolSize:4,itemStyle:{color:y.color(zs)},
data:i(!1)},{name:"Stand out",type:"scatter",symbol:"diamond",symbolSize:10,itemStyle:{color:y.color(Gs)},data:i(!0)}]}),
a=>a.on("click",l=>e(l.value[0]))),d("div",{},s,I([{name:"Ranks",color:zs},{name:"Stand out",color:Gs}]))}function Hs(n){
let{many:t}=n;if(!t)return null;let e=u=>n.ranks.findIndex(m=>m.rank===u),s=d("div",{class:"picked",role:"status"}),o=d(
"div"),i=u=>{let m=e(u);if(m<0){s.replaceChildren(`rank ${u} is not in this page: `,d("code",{},`etplus report … --ranks\
 ${u}`));return}A("rank").value=m,E.draw(m)},a=d("select",{"aria-label":"Quantity",onchange:()=>l()},t.quantities.map((u,m)=>d(
"option",{value:m},u.title))),l=()=>{for(let u of V)o.contains(u.node)&&(u.instance?.dispose(),V.delete(u));o.replaceChildren(
Co(t,t.quantities[a.value||0],i));for(let u of V)o.contains(u.node)&&o.isConnected&&u.draw()};l();let r=u=>u.length?`${u.
slice(0,12).join(", ")}${u.length>12?", …":""}`:"none",h=t.tables.map(({title:u,name:m,columns:f,rows:g,left_out:b})=>S(
u,b?`${v.format(b)} more rows are left out`:null,f,g,{sort:"",name:`job_${m}`,click:f[0].title==="rank"?M=>i(M[0]):void 0}));
return x("many","All ranks",`Only ${n.ranks.length} of ${v.format(t.numbers.length)} ranks are shown in detail below: th\
ose that stand out, the first and the middle one. A click on one of them shows it.`,d("div",{class:"tiles"},j("Ranks",v.
format(t.numbers.length),`${n.ranks.length} in detail`),j("Stragglers",v.format(t.stragglers.length),r(t.stragglers)),j(
"Stand out",v.format(t.outliers.length),r(t.outliers))),k("Each rank",null,d("div",{class:"tools"},a),o,s),...h)}var Us={prefill:1,decode:0,mixed:6,capture:4,idle:"line",unknown:9},Ao=30,qs=(n,{start_ns:t,latency_ns:e})=>{let s=t-n.start_ns;
return{from:s,to:s+e}};function Eo(n,t,e){let s=t.filter(o=>o.phase===e||e==="all");return s.length?qs(n,s.reduce((o,i)=>i.
latency_ns>o.latency_ns?i:o)):null}function Vs(n,t){let{serving_steps:e,serving_phases:s}=t.analysis;if(!e.length)return null;
let o=Object.keys(Us).filter(a=>e.some(l=>l.phase===a)).map(a=>({name:a,color:Us[a]})),i=e.filter(a=>a.tokens_per_second!==
null);return x("serving","Serving","Steps of the serving engine: from the start of the annotation to its end, or to that\
 of the last device event that it launched.",k("Phases over time",null,To(t,e,o)),J([6,6],k("Latency of steps",Lo(e),Ks(
t,e,o,"latency_ns","ns")),i.length?k("Tokens per second","new tokens of a step over its time",Ks(t,i,o,"tokens_per_secon\
d","tokens/s")):null),Po(t,e,o),S("Phases",null,[c.text("phase","Phase"),c.count("steps","Steps"),c.count("tokens","Toke\
ns"),c.ns("mean_latency_ns","Mean latency"),c.ns("p50_latency_ns","p50"),c.ns("p90_latency_ns","p90"),c.ns("p99_latency_\
ns","p99"),c.ns("longest_ns","Longest"),c.ns("device_ns","GPU busy"),c.ns("idle_ns","Idle"),c.ns("host_before_ns","Host \
before"),c.other("tokens_per_second","Tokens/s"),c.ns("ns_per_output_token","Per output token"),c.ns("ns_per_prefill_tok\
en","Per prefill token")],s,{sort:"",filter:!1,name:"serving_phases",jump:({phase:a})=>Eo(t,e,a)}),S("Steps",H(t,"servin\
g_steps"),[c.text("step","Step"),c.text("phase","Phase"),c.count("prefill_requests","Prefill requests"),c.count("prefill\
_tokens","Prefill tokens"),c.count("decode_requests","Decode requests"),c.count("decode_tokens","Decode tokens"),c.count(
"keys","Keys"),c.ns("latency_ns","Latency"),c.ns("host_before_ns","Host before"),c.ns("device_ns","GPU busy"),c.ns("idle\
_ns","Idle"),c.count("events","GPU events"),c.other("tokens_per_second","Tokens/s"),c.other("flops","FLOPs","flop"),c.bytes(
"bytes","Bytes")],e,{sort:"",name:"serving_steps",jump:a=>qs(t,a)}))}function Lo(n){let t=n.filter(e=>e.time_ns<e.latency_ns).
length;return t?`${t} of ${n.length} begin before the device has done with the one before`:null}function Xs(n,t){let e=(s,o)=>s?
`${p(o,"count")} of ${p(s,"count")} requests`:null;return N(`step ${t.step}: ${t.phase}`,[["at",p(t.start_ns-n.start_ns,
"ns")],["latency",p(t.latency_ns,"ns")],["GPU busy",p(t.device_ns,"ns")],["prefill tokens",e(t.prefill_requests,t.prefill_tokens)],
["decode tokens",e(t.decode_requests,t.decode_tokens)],["keys",t.keys===null?null:p(t.keys,"count")],["tokens/s",t.tokens_per_second===
null?null:F(t.tokens_per_second)]])}function To(n,t,e){let s=d("div"),o=new Map(e.map((i,a)=>[i.name,a]));return D(s,52+
26*e.length,()=>({grid:{left:74,right:24,top:8,bottom:30},tooltip:P(i=>Xs(n,i.data.row)),xAxis:C({type:"value",...Rt(n),
unit:"ns",axisLabel:{hideOverlap:!0}}),yAxis:C({type:"category",data:e.map(i=>i.name),inverse:!0}),dataZoom:[{type:"insi\
de",filterMode:"none"}],series:[{type:"custom",encode:{x:[1,2],y:0},renderItem:(i,a)=>{let[l,r]=a.coord([a.value(1),a.value(
0)]),[h]=a.coord([a.value(2),a.value(0)]);return{type:"rect",shape:{x:l,y:r-8,width:Math.max(h-l,1),height:16},style:{fill:U(
e[a.value(0)].color),stroke:y.value("card"),lineWidth:.5}}},data:t.map(i=>{let a=i.start_ns-n.start_ns;return{value:[o.get(
i.phase),a,a+i.latency_ns],row:i}})}]})),s}function Ks(n,t,e,s,o){let i=d("div"),a=t.map(r=>r[s]).filter(r=>r>0),l=a.length>
1&&Math.max(...a)>Ao*Math.min(...a);return D(i,240,()=>({grid:{left:84,right:24,top:14,bottom:28},tooltip:P(r=>Xs(n,r.data.
row)),xAxis:C({type:"value",...Rt(n),unit:"ns",axisLabel:{hideOverlap:!0}}),yAxis:C({type:l?"log":"value",min:l?void 0:0,
unit:o}),dataZoom:[{type:"inside",filterMode:"none"}],series:e.map(({name:r,color:h})=>({name:r,type:"scatter",symbolSize:t.
length>200?5:9,symbol:ct[Y(h)],itemStyle:{color:y.color(h),opacity:.85},data:t.filter(u=>u.phase===r&&(!l||u[s]>0)).map(
u=>({value:[u.start_ns-n.start_ns,u[s]],row:u}))}))})),d("div",{},i,I(e))}function Po(n,t,e){let s=t.filter(w=>w.flops>0&&
w.bytes>0&&w.device_ns>0),o=Object.values(n.analysis.devices).filter(w=>Object.keys(w.peaks).length&&w.memory_gb_s);if(!s.
length)return null;let i=w=>[w.flops/w.bytes,w.flops/w.device_ns*1e9],a=s.map(i),l=d("div"),r=o.length?Object.entries(o[0].
peaks):[],h=o.length?o[0].memory_gb_s*1e9:0,u=Math.max(0,...r.map(w=>w[1])),m=(w,_)=>10**_(Math.log10(w)),f=m(Math.min(...a.
map(w=>w[0])),Math.floor),g=m(Math.max(...a.map(w=>w[0]),h?3*u/h:1),Math.ceil),b=m(Math.min(...a.map(w=>w[1])),Math.floor),
M=m(Math.max(...a.map(w=>w[1]),u)*1.01,Math.ceil);return D(l,340,()=>({grid:{left:84,right:130,top:16,bottom:46},tooltip:P(
w=>w.data.row?N(`step ${w.data.row.step}: ${w.data.row.phase}`,[["FLOP per byte",F(w.data.value[0])],["achieved",p(w.data.
value[1],"flop/s")],["memory",p(w.data.row.bytes/w.data.row.device_ns*1e9,"bytes/s")],["known work",`${p(w.data.row.known_ns/
(w.data.row.events_ns||1),"share")} of GPU time`]]):null),xAxis:C({type:"log",min:f,max:g,name:"FLOP per byte",nameLocation:"\
middle",nameGap:28,axisLabel:{formatter:Zt}}),yAxis:C({type:"log",min:b,max:M,unit:"flop/s"}),series:[...r.map(([w,_])=>({
type:"line",symbol:"none",silent:!0,lineStyle:{color:y.value("muted"),width:1.5},data:[[Math.max(f,b/h),Math.max(f*h,b)],
[_/h,_],[g,_]].filter(O=>O[0]>=f),endLabel:{show:!0,formatter:`${w} ${at(_,"flop/s")}`,color:y.value("muted"),fontSize:11.5}})),
...e.map(({name:w,color:_})=>({name:w,type:"scatter",z:3,symbolSize:11,symbol:ct[Y(_)],itemStyle:{color:y.color(_),opacity:.8,
borderColor:y.value("card"),borderWidth:1},data:s.filter(O=>O.phase===w).map(O=>({value:i(O),row:O}))}))]})),k("Roofline\
 of steps","known FLOPs and bytes of a step over the time in which the device worked",I(e),l)}function Ys(n,t){if(!t.tables)return null;let e=t.tables.map(({title:s,name:o,columns:i,rows:a})=>S(s,"",i,a,{sort:"",name:o}));
return e.some(Boolean)?x("tables","Further tables",null,...e):null}var Q=50,re=12,Dt=16,Ft=22,Wt=7,De=50;function Js({lane:n,depth:t,ts:e}){let s=[];for(let o=0;o<e.length;o++){let i=s[s.
length-1];i&&i.lane===n[o]&&i.depth===t[o]?i.end=o+1:s.push({lane:n[o],depth:t[o],begin:o,end:o+1})}return s}function Zs(n,t){
return[{type:"inside",filterMode:"none",zoomLock:!0,startValue:n,endValue:t,minValueSpan:De},{type:"slider",filterMode:"\
none",top:2,height:22,left:4,right:4,startValue:n,endValue:t,brushSelect:!1,showDetail:!1,borderColor:"transparent",backgroundColor:y.
value("sunk"),fillerColor:`${y.color(0)}33`,dataBackground:{lineStyle:{opacity:0},areaStyle:{color:y.value("faint"),opacity:.6}},
selectedDataBackground:{lineStyle:{opacity:0},areaStyle:{color:y.color(0),opacity:.8}},handleStyle:{borderColor:y.color(
0),color:y.value("card")},moveHandleSize:0}]}function Qs(n){let t=0;return n.map(e=>(t+=e)-e)}function pt(n,t,e,s,o){for(;e<
s;){let i=e+s>>1;n[i]+t[i]<o?e=i+1:s=i}return e}var No=400,Io=600,Fe={fields:[],lane:[],depth:[],from:[],to:[],count:[],data:[]},St=class{constructor(t,e){this.tiles=t??
Fe,this.changed=e,this.decoded=new Map,this.pending=new Set,this.rows=new Map,this.first=[],this.size=0;for(let s=0;s<this.
tiles.lane.length;s++){let o=`${this.tiles.lane[s]} ${this.tiles.depth[s]}`,i=this.rows.get(o);i?i[1]=s+1:this.rows.set(
o,[s,s+1]),this.first.push(this.size),this.size+=this.tiles.count[s]}}*within(t,e,s,o){let[i,a]=this.rows.get(`${t} ${e}`)??
[0,0];for(let l=i;l<a&&this.tiles.from[l]<=o;l++)this.tiles.to[l]>=s&&(yield l)}of(t,e,s){if(!this.size)return null;let o=t.
map(({lane:l,depth:r})=>[...this.within(l,r,e,s)]);if(o.reduce((l,r)=>l+r.length,0)>No)return null;let a=o.flat().filter(
l=>!this.decoded.has(l)&&!this.pending.has(l));return a.length&&this.fetch(a),o.map(l=>l.every(r=>this.decoded.has(r))?l.
map(r=>this.use(r)):null)}use(t){let e=this.decoded.get(t);return this.decoded.delete(t),this.decoded.set(t,e),e}async fetch(t){
for(let s of t)this.pending.add(s);let e=await Promise.all(t.map(s=>this.decode(s)));t.forEach((s,o)=>{this.pending.delete(
s),this.keep(s,e[o])}),this.changed()}keep(t,e){this.decoded.set(t,e);for(let s of this.decoded.keys()){if(this.decoded.
size<=Io)break;this.decoded.delete(s)}}async decode(t){let e=this.tiles.count[t],s=await Nt(this.tiles.data[t],this.tiles.
fields,e),o=this.tiles.lane[t],i=this.tiles.depth[t];return Object.assign(s,{lane:o,depth:i,first:this.first[t],count:e})}tileOf(t){
let e=0,s=this.first.length;for(;s-e>1;){let o=e+s>>1;this.first[o]<=t?e=o:s=o}return e}placeOf(t){let e=this.tileOf(t);
return{lane:this.tiles.lane[e],depth:this.tiles.depth[e]}}async event(t){let e=this.tileOf(t);this.decoded.has(e)||this.
keep(e,await this.decode(e));let s=this.use(e),o={number:t,...this.placeOf(t)};for(let{name:i}of this.tiles.fields)o[i]=
s[i][t-s.first];return o}};var ce=10,We={"host work":0,"GPU work":4,collective:2},jo=1,Bo=24,Ro={kinds:[],work:[],main:[],makespan_ns:0,shown_ns:0,
tiles:Fe},le=class{constructor(t,e){this.path=t??Ro,this.timeline=e,this.shown=!0,this.walking=!1,this.at=null,this.tiles=
new St(this.path.tiles,()=>e.redraw()),this.node=d("div",{class:"picked",id:"path-said","aria-live":"polite"}),t&&this.say(
null)}get size(){return this.tiles.size}isWork(t){return this.path.work.includes(t)}color(t){return We[this.path.kinds[t]]??
jo}*within(t,e){let s=[...this.tiles.within(0,0,t,e)];if(s.length>Bo){for(let i of s){let a=this.path.tiles.from[i];yield{
number:-1,ts:a,dur:this.path.tiles.to[i]-a,kind:this.path.main[i],event:-1}}return}let o=this.tiles.of([{lane:0,depth:0}],
t,e)?.[0]??[];for(let i of o)for(let a=pt(i.ts,i.dur,0,i.count,t);a<i.count&&i.ts[a]<=e;a++)yield{number:i.first+a,ts:i.
ts[a],dur:i.dur[a],kind:i.kind[a],event:i.event[a]}}async walk(t){let{from:e,inspector:s}=this.timeline;if(!this.size||!s||
this.walking)return;this.walking=!0;let o=s.event?s.event.ts:e,i=Math.max(0,Math.min(this.size-1,this.at===null?await this.
atTime(o):this.at+t)),a=await this.tiles.event(i);this.shown=!0,this.walking=!1,this.say(a),a.event>=0&&await s.select(a.
event),this.at=i,this.walking=!1;let l=a.event>=0?this.timeline.tiles.placeOf(a.event):{lane:0,depth:0};s.reveal({...a,...l}),
this.timeline.redraw(),this.node.dataset.element=i}async atTime(t){let{to:e,from:s}=this.path.tiles,o=Math.min(e.findIndex(
h=>h>=t)>>>0,s.length-1),{ts:i,dur:a,count:l,first:r}=await this.tiles.decode(o);return r+pt(i,a,0,l,t)}toggle(){this.shown=
!this.shown,this.timeline.redraw()}say(t){let{makespan_ns:e,shown_ns:s,kinds:o}=this.path,i=p(e,"ns"),a=v.format(this.size),
l=s===e?"":`, of which ${p(s,"ns")} are on this page`;this.node.textContent=t?`Critical path, element ${v.format(t.number+
1)} of ${a}: ${o[t.kind]}, ${p(t.ns,"ns")} of ${i}`:`Critical path: ${a} elements, ${i} by the replay${l}; n and p walk \
along it, c hides it`,this.node.dataset.ns=String(t?.ns??"")}};var tn=12,en=80,Do=90,he=class{constructor(t,e){this.timeline=t,this.devices=e,this.details=new K(t.data.details,t.tiles,
t.data.lanes),this.event=null,this.arrows=[],this.asked=0;let s="Details of the selected event";this.node=d("div",{class:"\
details",role:"region",hidden:!0,tabindex:-1,"aria-label":s}),this.node.addEventListener("keydown",o=>{o.key==="Escape"&&
(this.timeline.canvas.focus(),o.preventDefault())})}async select(t,{reveal:e=!1,focus:s=!1}={}){let o=++this.asked;this.
timeline.critical.at=null;let[i,a]=await Promise.all([this.details.of(t),this.details.texts()]),l=K.first(i.sources,"ope\
rator"),r=l===null?null:await this.details.of(l);r&&(r.full=a.names[r.name]);let h=(await this.callersOf(r??i)).map(g=>a.
names[g.name]),u=await this.arrowsOf(i);if(o!==this.asked)return;this.event=i,this.arrows=u,this.panel(i,a,r,h),this.timeline.
picked.dataset.event=t,e&&this.reveal(i),this.timeline.redraw();let{kinds:m,lanes:f}=this.timeline.data;this.timeline.sayOf(
{...i,kind:m[i.kind],lane:f[i.lane]}),s&&this.node.focus(),this.node.dataset.arrows=JSON.stringify(u.map(g=>[g.kind,g.from.
number,g.to.number])),this.node.dataset.event=t}async callersOf(t){let e=[];for(let s=K.first(t.sources,"caller");s!==null;){
let o=await this.details.of(s);e.unshift(o),s=K.first(o.sources,"caller")}return e}clear(){this.asked++,this.event=null,
this.arrows=[],this.node.hidden=!0,delete this.node.dataset.event,this.timeline.redraw()}async arrowsOf(t){let e=[],s=(r,h,u)=>h>=
0&&u>=0&&e.length<en&&e.push([r,h,u]);for(let{kind:r,other:h}of t.sources)s(r,h,t.number);for(let{kind:r,other:h}of t.targets)
r!=="caller"&&s(r,t.number,h);let o=t.gpu?K.first(t.sources,"launch"):null;if(o!==null){let{sources:r}=await this.details.
of(o);for(let{kind:h,other:u}of r)h==="caller"&&s(h,u,o)}let i=t.targets.filter(({kind:r,other:h})=>r==="caller"&&h>=0);
for(let{other:r}of i.slice(0,en))for(let h of(await this.details.of(r)).targets)h.kind==="launch"&&(s("caller",t.number,
r),s("launch",r,h.other));let a=e.some(([r])=>r==="launch"),l=e.filter(([r])=>!(r==="operator"&&a));return Promise.all(l.
map(async([r,h,u])=>({kind:r,from:await this.timeline.tiles.event(h),to:await this.timeline.tiles.event(u)})))}panel(t,e,s,o){
let{lanes:i,kinds:a}=this.timeline.data,l=i[t.lane],r=`#event-${t.number}`,h=[$("ts","Start",t.ts,Et(t.ts)),Bt("dur",t.gpu?
"Duration":"Total time",t.dur),...t.gpu?Ss(t,e,l,s,this.devices):$s(t,e),...o.length?[$("callers","Call stack",o,o.join(
" › "))]:[]],u=(m,f,g)=>d("button",{type:"button",title:f,onclick:g},m);this.node.hidden=!1,this.node.replaceChildren(
d("header",{},d("div",{},Lt(a[t.kind].color),d("b",{},a[t.kind].name),d("span",{},l.name)),d("h3",{},d("code",{"data-key":"\
name"},e.names[t.name])),d("div",{class:"tools"},u("Fill the view","z",()=>this.timeline.fill(t)),u("What runs meanwhile",
"m",()=>this.timeline.span?.set(t.ts,t.ts+t.dur)),u("Close","Esc",()=>this.clear()),Se(t.gpu?"kernel":"call",e.names[t.name],
"In the table"),E.cameFrom?u("Back","Backspace: to the row or finding that led here",oe):null,d("a",{href:r,title:"An ad\
dress that opens the page with this event"},r))),d("dl",{},h.map(({key:m,label:f,value:g,text:b})=>d("div",{class:b.length>
Do?"long":null},d("dt",{},f),d("dd",{"data-key":m,"data-value":JSON.stringify(g),title:`${f}: ${g}`},Se(m,g)??b)))),...this.
relations(t.sources,0),...this.relations(t.targets,1))}relations(t,e){return Object.keys(Ae).map(s=>{let o=t.filter(i=>i.
kind===s).map(i=>i.other);return o.length?this.relation(s,e,o):null}).filter(Boolean)}relation(t,e,s){let o=s.filter(h=>h>=
0),i=d("ul"),a=s.length-o.length,l=d("button",{type:"button"},`Show all ${v.format(o.length)}`),r=async h=>{let{names:u}=this.
timeline.data,m=await Promise.all(o.slice(0,h).map(f=>this.timeline.tiles.event(f)));i.replaceChildren(...m.map(f=>d("li",
{},d("button",{type:"button","data-event":f.number,onclick:()=>this.select(f.number,{reveal:!0})},d("code",{},W(u[f.name],
80)),d("span",{},`${p(f.dur,"ns")} at ${p(f.ts,"ns")}`)))))};return l.addEventListener("click",()=>{l.remove(),r(o.length)}),
r(tn),d("div",{class:"relation","data-relation":`${t} ${e?"out":"in"}`},d("h4",{},Ae[t][e],d("small",{},t)),i,o.length>tn?
l:null,a?d("p",{class:"none"},`${v.format(a)} not on this page`):null)}reveal(t){let{timeline:e}=this,{ts:s,dur:o,lane:i,
depth:a}=t,l=e.to-e.from,r=l/(e.canvas.clientWidth||1e3);a>=(e.folded.get(i)??1/0)&&(e.folded.delete(i),e.refold()),o<4*
r||o>l?e.show(s-Math.max(200,4*o),s+Math.max(200,5*o)):(s<e.from||s+o>e.to)&&e.show(s+o/2-l/2,s+o/2+l/2);let h=e.canvas.
getBoundingClientRect().top+e.rowAt(t).y;(h<70||h>innerHeight-40)&&scrollBy({top:h-innerHeight/3,behavior:"instant"})}firstInView(){
let{timeline:t}=this;for(let[e,,,s,,,o]of t.visible()){let{event:i}=t.at([0,0,0,s,0,0,o]);if(i!==null&&e>=t.from)return i}
return null}follow(...t){if(!this.event)return;let{sources:e,targets:s}=this.event;for(let[o,i]of t){let a=K.first(i?s:e,
o);if(a!==null)return this.select(a,{reveal:!0})}}beside(t){let{tiles:e}=this.timeline,s=this.event?this.event.number+t:
this.firstInView();if(s===null||s<0||s>=e.size)return;if(!this.event)return this.select(s,{reveal:!0});let{lane:o,depth:i}=e.
placeOf(s);o===this.event.lane&&i===this.event.depth&&this.select(s,{reveal:!0})}act(t){return{ArrowLeft:()=>this.beside(
-1),ArrowRight:()=>this.beside(1),ArrowUp:()=>this.follow(["launch",0],["operator",0],["caller",0]),ArrowDown:()=>this.follow(
["launch",1],["caller",1],["operator",1]),o:()=>this.follow(["operator",0],["caller",0]),l:()=>this.follow(["launch",0],
["caller",1]),k:()=>this.follow(["operator",1],["launch",1]),b:()=>this.follow(["forward",1],["forward",0]),g:()=>this.follow(
["data",0],["event",0],["sync",0],["comm",0],["thread_handoff",0],["graph",0]),h:()=>this.follow(["data",1],["event",1],
["sync",1],["comm",1],["thread_handoff",1],["graph",1]),z:()=>this.event&&this.timeline.fill(this.event),m:()=>this.event&&
this.timeline.span?.set(this.event.ts,this.event.ts+this.event.dur),Enter:()=>this.event?this.node.focus():this.beside(0),
Escape:()=>this.clear()}[t]}};function ze(){let n=Number(/^#event-(\d+)$/.exec(location.hash)?.[1]??NaN),{timeline:t}=E;
t?.inspector&&n<t.tiles.size&&t.inspector.select(n,{reveal:!0})}var Fo=[["w s a d","zoom in and out, move left and right"],["← →","event before or after the selected one in its row\
; without one, the first in view"],["↑","to the launch call, the operator, the caller"],["↓","to what is called or l\
aunched"],["o","kernel → its operator"],["l","kernel → its launch call"],["k","operator or launch call → its first k\
ernel"],["b","forward ↔ backward operator"],["g h","what it waits for or reads from; what waits for it or reads it"],[
"n p","next and previous element of the critical path"],["c","show or hide the critical path"],[". ,","next and previous\
 event of the search, or of the row that led here"],["/ Backspace","to the search; back to the row or finding that led h\
ere"],["z","fill the view with the selected event"],["m","what runs during the selected event"],["[ ]","start and end of\
 a span at the selected event's start and end"],["Shift + drag","select a span: a table of what runs in it"],["Enter","t\
o the details; Esc back, and again to close them"],["?","this list"]];function sn(){return d("dialog",{class:"keys","ari\
a-label":"Keys of the timeline"},d("h3",{},"Keys of the timeline"),d("dl",{},Fo.map(([t,e])=>d("div",{},d("dt",{},d("kbd",
{},t)),d("dd",{},e)))),d("form",{method:"dialog"},d("button",{},"Close")))}var de=6,Wo={caller:9,operator:4,launch:4,forward:5,data:3,comm:2,sync:1,event:1},zo=1.5;function on(n){return{id:"overl\
ay",type:"custom",clip:!0,silent:!0,z:5,progressive:0,encode:{x:[0,1],y:-1},tooltip:{show:!1},renderItem:(t,e)=>n.overlays[t.
dataIndex]?.draw(e)??null,data:Ge(n)}}function Ge(n){return n.overlays=[...Ho(n),...Vo(n),...Uo(n),...Go(n)],n.overlays.
map(({from:t,to:e})=>[t,e])}var ft=(n,t)=>n.coord([t,0])[0];function ue(n,t,e,s,o,i=0){return{from:n,to:t,draw:l=>{let r=ft(
l,n)-i,h=Math.max(1+2*i,ft(l,t)-r+i);return{type:"rect",shape:{x:r,y:e-i,width:h,height:s+2*i,r:2*i},style:o}}}}function*Go(n){
let t=n.inspector?.event;if(!t)return;let{y:e,tall:s}=n.rowAt(t),o={fill:"transparent",stroke:y.value("text"),lineWidth:2};
yield ue(t.ts,t.ts+t.dur,e,s,o,1)}function*Ho(n){let t=n.span?.selected,e=y.value("accent");t&&(yield ue(t.from,t.to,Q,n.
height,{fill:e,opacity:.14,stroke:e,lineWidth:1}))}function*Uo(n){for(let{kind:t,from:e,to:s}of n.inspector?.arrows??[]){
let o=n.rowAt(e),i=n.rowAt(s),a=t==="caller"||t==="operator",l=a?s.ts:e.ts+e.dur,r=Wo[t]??9;yield{from:Math.min(l,s.ts),
to:Math.max(l,s.ts),draw:h=>{let u=o.y+o.tall/2;return a?Ko(ft(h,s.ts),u,o.y<i.y?i.y:i.y+i.tall,y.color(r)):qo(ft(h,l),u,
ft(h,s.ts),i.y+i.tall/2,y.color(r))}}}}function Ko(n,t,e,s){let o=e>t?-de:de,i=de/2+1,a={type:"line",shape:{x1:n+2,y1:t,
x2:n+2,y2:e+o},style:{stroke:s,lineWidth:1.6}};return an(a,[[n+2,e+2],[n+2-i,e+o],[n+2+i,e+o]],s)}function qo(n,t,e,s,o){
let i=Math.max(18,Math.min(90,Math.abs(e-n)/3)),a=de,l={type:"bezierCurve",shape:{x1:n,y1:t,x2:e-a,y2:s,cpx1:n+i,cpy1:t,
cpx2:e-a-i,cpy2:s},style:{fill:"none",stroke:o,lineWidth:1.6,opacity:.9}},r=e-a-1,h=a/2+1;return an(l,[[e,s],[r,s-h],[r,
s+h]],o)}function an(n,t,e){return{type:"group",children:[n,{type:"polygon",shape:{points:t},style:{fill:e}}]}}function*Vo(n){
let{critical:t,from:e,to:s}=n;if(!t?.size||!t.shown)return;let o=(s-e)/Math.max(200,n.canvas.clientWidth||1e3),i=null,a=null;
for(let l of t.within(e,s)){let r=l.ts+l.dur,h=t.color(l.kind);if(i&&(i.color===h||r-i.from<o)?i.to=Math.max(i.to,r):(i&&
(yield nn(i)),i={from:l.ts,to:r,color:h}),!t.isWork(l.kind))continue;if(l.event<0||l.dur<zo*o){a=null;continue}let u={...l,
...n.rowAt(n.tiles.placeOf(l.event)),color:h};yield Xo(u,l.number===t.at),a&&(yield Yo(a,u)),a=u}i&&(yield nn(i))}function nn({
from:n,to:t,color:e}){return ue(n,t,Q+1,ce-4,{fill:U(e)})}function Xo({ts:n,dur:t,y:e,tall:s},o){let i=o?5:3;return ue(n,
n+t,e+s-i,i,{fill:y.value("path")})}function Yo(n,t){let e=n.ts+n.dur;return{from:Math.min(e,t.ts),to:Math.max(e,t.ts),draw:o=>({
type:"line",shape:{x1:ft(o,e),y1:n.y+n.tall-1,x2:ft(o,t.ts),y2:t.y+t.tall-1},style:{stroke:y.value("path"),lineWidth:1.5,
lineDash:[3,2]}})}}var rn=60,me=class{constructor(t){this.timeline=t,this.input=d("input",{type:"search",id:"search",placeholder:"Search ca\
lls and kernels…","aria-label":"Search the timeline",title:"Enter, Shift + Enter: next, previous call; ↓ ↑: next, prev\
ious name"}),this.said=d("span",{class:"said",id:"search-said",role:"status"}),this.list=d("div",{class:"found",hidden:!0}),
this.node=d("div",{class:"searching"},this.input,this.list),this.rows=[],this.at=-1,this.input.addEventListener("input",
()=>this.find(this.input.value)),this.input.addEventListener("keydown",e=>this.key(e)),document.addEventListener("click",
e=>{this.node.contains(e.target)||(this.list.hidden=!0)})}key(t){t.key==="Escape"?(this.input.value="",this.find("")):t.
key==="Enter"?(t.preventDefault(),this.step(t.shiftKey?-1:1)):t.key!=="Home"&&t.key!=="End"&&yt(t,this.at,this.rows.length,
e=>this.choose(e))}find(t){let{timeline:e}=this,{names:s,found:o,places:i,kinds:a}=e.data,l=t.trim().toLowerCase(),r=new Set(
l?s.flatMap((m,f)=>se(m,l)?[f]:[]):[]);e.matches=l?r:null,e.hits=null;let h=l?o.filter(m=>r.has(m.name)):[],u=l?i.filter(
m=>m.text.toLowerCase().includes(l)):[];this.rows=[...h.slice(0,rn),...u.slice(0,rn)],this.at=-1,this.list.hidden=!this.
rows.length,this.list.replaceChildren(...this.rows.map((m,f)=>d("button",{type:"button",tabindex:-1,"data-place":m.text,
onclick:()=>this.choose(f,!0)},m.text?q(m.what):Lt(a[m.kind].color),d("code",{},W(m.text??s[m.name],120)),d("span",{},`${v.
format(m.count)} ×`),d("span",{},p(m.total,"ns"))))),this.said.textContent=l?h.length?`${v.format(h.reduce((m,f)=>m+f.count,
0))} calls of ${v.format(h.length)} names`:u.length?`${v.format(u.length)} lines and modules`:"nothing found":"",e.redraw()}choose(t,e=!1){
let{timeline:s}=this,o=this.rows[t];this.at=t,[...this.list.children].forEach((a,l)=>a.classList.toggle("at",l===t)),this.
list.children[t].scrollIntoView({block:"nearest"}),this.list.hidden=e,s.hits=null;let i=Math.max(o.dur*3,200);s.show(o.ts-
i,o.ts+o.dur+i),!o.text&&(s.matches=new Set([o.name]),s.say(o.name,[s.data.kinds[o.kind].name,`${v.format(o.count)} call\
s, ${p(o.total,"ns")}`,`the longest ${p(o.dur,"ns")} at ${p(o.ts,"ns")}`]),s.redraw())}async step(t){let{timeline:e,rows:s}=this;
if(s.length){if(!e.matches?.size||s[this.at]?.text||!e.inspector)return this.choose((Math.max(this.at,t<0?0:-1)+t+s.length)%
s.length);this.list.hidden=!0,e.hits??=new kt(e,(await It(e,{codes:e.matches})).map(o=>o.number)),await e.hits.step(t),this.
said.textContent=e.hits.text}}};var Jo="Of the span's length; over 100 % where several run at a time",pe=class{constructor(t){this.timeline=t,this.selected=
null,this.asked=0;let e="What runs in the selected span";this.node=d("div",{class:"in-span",role:"region",hidden:!0,"ari\
a-label":e});let s=t.canvas;for(let o of["pointerdown","mousedown"])s.addEventListener(o,i=>this.press(i,o),!0)}press(t,e){
if(!t.shiftKey||t.button!==0)return;if(t.stopPropagation(),e!=="pointerdown")return t.preventDefault();let s=this.timeline.
timeAt(t.clientX);Ut(o=>this.preview(s,this.timeline.timeAt(o.clientX)),o=>this.set(s,this.timeline.timeAt(o.clientX)))}preview(t,e){
let{span:s}=this.timeline.data;return this.selected={from:Math.round(Math.max(0,Math.min(t,e))),to:Math.round(Math.min(s,
Math.max(t,e)))},this.timeline.redraw(),this.selected}clear(){this.asked++,this.selected=null,this.node.hidden=!0,this.timeline.
redraw()}setEnd(t,e){let{from:s,to:o}=this.timeline,{selected:i}=this;t==="from"?this.set(e,i&&i.to>e?i.to:o):this.set(i&&
i.from<e?i.from:s,e)}async set(t,e){let{from:s,to:o}=this.preview(t,e);if(o<=s)return this.clear();let i=++this.asked,a=await this.
totals(s,o,()=>i===this.asked);a&&this.show(s,o,a)}async totals(t,e,s){let{tiles:o,rows:i}=this.timeline,a=new Map,l=new Map,
r=this.timeline.data.lanes,h=(u,m,f,g)=>{let b=u.get(m);b?(b.count+=1,b.total+=g):u.set(m,{...f,count:1,total:g})};for(let{
lane:u,depth:m}of i)for(let f of o.within(u,m,t,e)){let{ts:g,dur:b,name:M,kind:w,op:_,count:O}=o.decoded.get(f)??await o.
decode(f);if(!s())return null;for(let L=pt(g,b,0,O,t);L<O&&g[L]<e;L++){let B=Math.min(e,g[L]+b[L])-Math.max(t,g[L]);B<0||
B===0&&b[L]>0||(h(a,w[L]*2**32+M[L],{name:M[L],kind:w[L],gpu:r[u].gpu},B),r[u].gpu&&h(l,_[L],{name:_[L]},B))}}return{byName:[
...a.values()],byOp:[...l.values()]}}show(t,e,{byName:s,byOp:o}){let{names:i,kinds:a}=this.timeline.data,l=e-t,r=m=>m.map(
({name:f,kind:g,count:b,total:M})=>({name:f>=0?i[f]:"unknown",kind:g===void 0?null:a[g].name,count:b,total:M,share:M/l})),
h=[c.code("name","Name"),c.text("kind","Kind"),c.count("count","Count"),c.ns("total","Time",{hint:"Within the span, call\
ees included"}),c.share("share","Share",{hint:Jo})],u=(m,f,g)=>g.length?[d("h4",{},m),G(h,r(g),{sort:"total",name:`span-${f}`})]:
[];this.node.hidden=!1,this.node.replaceChildren(d("header",{},d("h3",{},`${p(l,"ns")} selected`),d("span",{class:"said"},
`${Et(t)} to ${Et(e)}`),d("button",{type:"button",onclick:()=>this.clear()},"Clear")),...u("Device work by operator","op",
o),...u("Device work by name","gpu",s.filter(m=>m.gpu)),...u("Host calls","cpu",s.filter(m=>!m.gpu))),this.node.dataset.
span=`${t} ${e}`}};var fe=3,ln=24,Zo=860,He=1.5,Qo=6,ti=34,ge=class{constructor(t,e={}){this.data=t,this.rows=Js(t),this.names=new Set(t.names),
this.tiles=new St(t.tiles,()=>this.redraw()),this.numbers=Qs(t.count),this.sources=[t],this.from=0,this.to=t.span,this.matches=
null,this.hits=null,this.step=null,this.inspector=null,this.span=null,this.overlays=[],this.pending=0,this.tops=[],this.
height=0,this.folded=new Map;let s=t.lanes.reduce((i,a)=>i+a.rows*(a.gpu?Ft:Dt)+Wt,0),o=t.lanes.findIndex(i=>!i.gpu);s>Zo&&
t.lanes.forEach((i,a)=>{!i.gpu&&i.rows>(a===o?ln:fe)&&this.folded.set(a,a===o?ln:fe)}),this.chart={instance:null,draw(){}},
this.build(),this.critical=new le(t.path,this),t.tiles&&(this.inspector=new he(this,e),this.span=new pe(this),this.node.
append(this.inspector.node,this.span.node)),this.critical.size&&this.node.append(this.critical.node),this.place()}build(){
this.lanes=d("div",{class:"lanes"}),this.canvas=d("div",{tabindex:0,role:"application","aria-label":"Timeline; press ? f\
or its keys"}),this.help=sn(),this.picked=d("div",{class:"picked"},"Click a call for its details."),this.search=new me(this);
let t=(s,o,i,a)=>d("button",{type:"button",id:s,title:i,onclick:a},o),e=d("div",{class:"tools"},this.search.node,this.search.
said,d("span",{class:"said push"},"drag to move · Ctrl + wheel to zoom · Shift + drag to select a span"),t("keys","?",
"Keys (?)",()=>this.help.showModal()),t("zoom-in","+","Zoom in (w)",()=>this.zoom(.4)),t("zoom-out","−","Zoom out (s)",
()=>this.zoom(2.5)),t("zoom-all","Fit","All of it: the whole trace, or the step chosen",()=>this.fit()));this.node=d("di\
v",{},e,...["GPU","CPU"].map(s=>I(this.data.kinds.filter(o=>o.gpu===(s==="GPU")),{side:s})),d("div",{class:"timeline"},this.
lanes,d("div",{class:"frame"},this.canvas)),this.picked,this.help),this.canvas.addEventListener("keydown",s=>this.key(s)),
this.canvas.addEventListener("wheel",s=>this.wheel(s),{passive:!1})}place(){let t=this.critical.size?ce:0,e=t;this.tops=
this.data.lanes.map((s,o)=>{let i=e,a=this.folded.get(o)??s.rows;return e+=a*(s.gpu?Ft:Dt)+Wt,i}),this.height=e,this.lanes.
replaceChildren(...this.data.lanes.map((s,o)=>{let i=o+1<this.tops.length?this.tops[o+1]:e,a=d("div",{class:"lane",title:`${s.
name}
${s.note}`},d("b",{},s.name),i-this.tops[o]>34?d("i",{},s.note):null);return a.style.height=`${i-this.tops[o]}px`,!s.gpu&&
s.rows>fe&&(a.style.cursor="pointer",a.addEventListener("click",()=>{this.folded.delete(o)||this.folded.set(o,fe),this.refold()})),
a})),this.lanes.style.paddingTop=`${Q+t}px`}refold(){this.place(),this.canvas.style.height=`${Q+this.height+re}px`,this.
chart.draw()}get details(){if(!this.inspector)throw new Error("the page has no details");return this.inspector.details}mount(){
this.chart=D(this.canvas,Q+this.height+re,()=>this.options(),t=>this.wire(t))}options(){return this.font=y.value("sans"),
{grid:{left:0,right:0,top:Q,bottom:re,outerBoundsMode:"none"},tooltip:P(t=>t.seriesId==="calls"?this.tip(this.at(t.data)):
null,{trigger:"item"}),xAxis:C({type:"value",min:0,max:this.data.span,position:"top",splitNumber:7,axisLine:{show:!1},axisLabel:{
formatter:t=>this.tick(t),hideOverlap:!0,showMinLabel:!1,showMaxLabel:!1}}),yAxis:[{type:"value",min:0,max:this.height||
1,inverse:!0,show:!1},{type:"value",min:0,max:1,show:!1}],dataZoom:Zs(this.from,this.to),series:[{id:"load",type:"line",
yAxisIndex:1,data:this.data.load,symbol:"none",lineStyle:{opacity:0},silent:!0,tooltip:{show:!1}},{id:"calls",type:"cust\
om",clip:!0,encode:{x:[0,1],y:-1},progressive:0,renderItem:(t,e)=>this.draw(e),data:this.visible()},on(this)]}}wire(t){t.
on("datazoom",()=>{[this.from,this.to]=t.getModel().getComponent("xAxis").axis.scale.getExtent(),this.node.dataset.view=
`${this.from} ${this.to}`,cancelAnimationFrame(this.pending),this.pending=requestAnimationFrame(()=>this.redraw())}),t.on(
"click",e=>{e.seriesId==="calls"&&this.pick(this.at(e.data))}),t.on("dblclick",e=>{e.seriesId==="calls"&&this.fill(this.
at(e.data))})}redraw(){this.chart.instance?.setOption({series:[{id:"calls",data:this.visible()},{id:"overlay",data:Ge(this)}]})}rowAt({
lane:t,depth:e}){let s=this.data.lanes[t].gpu?Ft:Dt,o=Math.min(e,(this.folded.get(t)??1/0)-1);return{y:Q+this.tops[t]+o*
s+Wt/2,tall:s-1}}timeAt(t){let e=this.canvas.getBoundingClientRect().left;return this.from+(this.to-this.from)*(t-e)/this.
canvas.clientWidth}at([,,,t,,,e]){let s=this.sources[e],o=e===0;return{name:s.name[t],kind:this.data.kinds[s.kind[t]],ts:s.
ts[t],dur:s.dur[t],op:s.op[t],lane:this.data.lanes[o?s.lane[t]:s.lane],count:o?s.count[t]:1,event:this.data.tiles&&(!o||
s.count[t]===1)?o?this.numbers[t]:s.first+t:null,busy:o?s.busy[t]:s.dur[t]}}visible(){let t=(this.to-this.from)/Math.max(
200,this.canvas.clientWidth||1e3),e=this.rows.filter(({lane:l,depth:r})=>r<(this.folded.get(l)??1/0)),s=He*t<this.data.resolution,
o=s?this.tiles.of(e,this.from,this.to):null,i=[];this.sources=[this.data];let a=!s||!!o?.every(l=>l!==null);return e.forEach(
({lane:l,depth:r,begin:h,end:u},m)=>{let f=this.data.lanes[l].gpu?Ft:Dt,g=this.tops[l]+r*f+Wt/2;if(!o?.[m])return this.gather(
i,0,h,u,t,g,f-1);for(let b of o[m])this.sources.push(b),this.gather(i,this.sources.length-1,0,b.count,t,g,f-1)}),this.node.
dataset.complete=a?"yes":"no",i}gather(t,e,s,o,i,a,l){let r=this.sources[e],{ts:h,dur:u,name:m}=r,f=e?u:r.busy,g=He*i;for(let b=pt(
h,u,s,o,this.from);b<o&&h[b]<=this.to;b++){let M=h[b],w=this.matches?.has(m[b]),_=M+u[b],O=b,L=f[b];for(;u[b]<g&&b+1<o&&
u[b+1]<g&&h[b+1]-_<g&&h[b+1]+u[b+1]-M<Qo*i&&this.matches?.has(m[b+1])===w;)b++,_=h[b]+u[b],L+=f[b],u[b]>u[O]&&(O=b);t.push(
[M,_,a,O,l,Math.min(1,L/Math.max(1,_-M)),e])}}draw(t){let e=t.coord([t.value(0),0]),s=t.coord([t.value(1),0]),o=t.value(
3),i=t.value(4),a=Q+t.value(2),l=t.value(6),r=this.sources[l];if(!r||!(o<r.name.length))return null;let h=Math.max(0,e[0]),
u=Math.min(t.getWidth(),s[0]),m=Math.max(He*.8,u-h-(u-h>4?1:0)),{names:f,kinds:g}=this.data,b=l?1:r.count[o],M=this.matches&&
!this.matches.has(r.name[o]),{color:w}=g[r.kind[o]],_=m<ti||M?"":b>1?`${v.format(b)} calls`:X(f[r.name[o]]);return{type:"\
rect",shape:{x:h,y:a,width:m,height:i},style:{fill:U(w),opacity:M?.13:.3+.7*t.value(5)},textConfig:{position:"insideLeft",
distance:4},textContent:{type:"text",style:{text:_,fill:et(y.color(w)),fontSize:i>18?12:11,fontFamily:this.font,width:Math.
max(1,m-8),overflow:"truncate",ellipsis:""}}}}tip({name:t,kind:e,ts:s,dur:o,count:i,busy:a,op:l,lane:r}){let{names:h}=this.
data,u=i>1;return N(W(h[t],180),[u?["calls merged here, the longest named",v.format(i)]:null,["kind",e.name],["on",r.name],
l>=0?["launched by",W(h[l],60)]:null,["start",p(s,"ns")],[u?"from first to last":"duration",p(o,"ns")],u?["busy",p(a,"ns")]:
null])}pick(t){this.sayOf(t),t.event===null?this.inspector?.clear():this.inspector?.select(t.event)}sayOf({name:t,kind:e,
ts:s,dur:o,count:i=1,op:a,lane:l}){Object.assign(this.picked.dataset,{ts:s,dur:o,count:i}),this.say(t,[e.name,l.name,`st\
art ${p(s,"ns")}`,`duration ${p(o,"ns")}`,i>1?`${v.format(i)} calls merged; zoom in for one`:null,a>=0?`launched by ${this.
data.names[a]}`:null])}say(t,e){this.picked.replaceChildren(d("code",{},this.data.names[t])," — ",e.filter(Boolean).join(
" · "))}fill({ts:t,dur:e}){let s=Math.max(20,e*.06);this.show(t-s,t+e+s)}show(t,e){let s=this.data.span,o=Math.min(s,Math.
max(e-t,De)),i=Math.max(0,Math.min(t,s-o));this.chart.instance.dispatchAction({type:"dataZoom",startValue:i,endValue:Math.
min(s,i+o)})}showStep(t){this.step=t,this.from=t.from,this.to=t.to,this.node.dataset.view=`${this.from} ${this.to}`}fit(){
let{from:t,to:e}=this.step??{from:0,to:this.data.span};this.show(t,e)}zoom(t,e=(this.from+this.to)/2){this.show(e-t*(e-this.
from),e+t*(this.to-e))}wheel(t){!t.ctrlKey&&!t.metaKey||(t.preventDefault(),this.zoom(Math.exp(Math.max(-120,Math.min(120,
t.deltaY))/350),this.timeAt(t.clientX)))}key(t){let e=(this.to-this.from)*.25,o={w:()=>this.zoom(.5),s:()=>this.zoom(2),
a:()=>this.show(this.from-e,this.to-e),d:()=>this.show(this.from+e,this.to+e),n:()=>this.critical.walk(1),p:()=>this.critical.
walk(-1),c:()=>this.critical.toggle(),".":()=>this.hits?.step(1),",":()=>this.hits?.step(-1),"/":()=>this.search?.input.
focus(),Backspace:()=>oe(),"[":()=>this.inspector?.event&&this.span?.setEnd("from",this.inspector.event.ts),"]":()=>this.
inspector?.event&&this.span?.setEnd("to",this.inspector.event.ts+this.inspector.event.dur),"?":()=>this.help?.showModal()}[t.
key]??this.inspector?.act(t.key);t.ctrlKey||t.metaKey||t.altKey||!o||(o(),t.preventDefault())}tick(t){let[e,s]=Jt("ns",Math.
max(this.to,1)/2),o=(this.to-this.from)/7/s;return`${(t/s).toFixed(Math.max(0,Math.min(6,1-Math.floor(Math.log10(o)))))}\
 ${e}`}};function ye(n){let t=n.analysis.device_use,e=o=>t.reduce((i,a)=>i+a[o],0),s=e("communication_ns")-e("exposed_communicati\
on_ns");return{window:e("window_ns"),busy:e("busy_ns"),span:e("gpu_span_ns"),hidden:s,parts:[{name:"Computing",color:4,ns:e(
"compute_ns")-s},{name:"Computing and communicating",color:3,ns:s},{name:"Exposed communication",color:2,ns:e("exposed_c\
ommunication_ns")},{name:"Copies alone",color:1,ns:e("busy_ns")-e("compute_ns")-e("exposed_communication_ns")},{name:"Id\
le",color:"line",ns:e("idle_ns")}]}}function ei(n){let t=0,e=0,s=!1;for(let i of n.analysis.kernels)i.flops===null||!i.flops_per_second||
(t+=i.flops,i.flops_share!==null&&(s=!0,e+=i.flops/i.flops_per_second*1e9*i.flops_share));let o=ye(n).window;return[t&&o?
t/n.span_ns*1e9:null,s&&o?e/o:null]}function cn(n,t){let{analysis:e}=t,s=ye(t),[o,i]=ei(t),a=e.iterations,l=e.serving_phases.
at(-1),r=ot=>(s.parts.find(T=>T.name===ot)?.ns??0)/(s.window||1),h=t.attributed_ns/(t.tree.total_ns||1),u=e.iteration_list.
length,m=`${u} iteration${u>1?"s":""} of ${p(a.mean_latency_ns,"ns")}`,f=r("Computing")+r("Computing and communicating"),
g=s.parts[2].ns,b=`of ${p(s.window,"ns")}`,M=`${p(s.busy/(s.span||1),"share")} from the first GPU event to the last`,w=i===
null?"peak of the device unknown":`${p(i,"share")} of the peak`,_=t.gpu_events+t.host_calls+t.runtime_calls,O=t.coverage,
L=[j("Length",p(t.span_ns,"ns"),u?m:"no iterations marked"),s.window?j("GPU busy",p(s.busy/s.window,"share"),`${p(s.busy,
"ns")} ${b}; ${M}`):null,s.window?j("GPU computing",p(f,"share"),"without communication"):null,e.device_use.some(ot=>ot.
communication_ns)?j("Exposed comm.",p(r("Exposed communication"),"share"),`${p(g,"ns")} of ${p(s.hidden+g,"ns")}`):null,
o!==null?j("Achieved",p(o,"flop/s"),w):null,a.samples_per_second?j("Throughput",`${F(a.samples_per_second)} samples/s`,`\
batch of ${a.batch_size}`):null,l?.tokens_per_second?j("Tokens",`${F(l.tokens_per_second)} /s`,si(e.serving_phases)):null,
j("Events",p(_,"count"),`${p(t.gpu_events,"count")} on the GPU`),O?j("Linked",p(O.linked/(O.total||1),"share"),`of ${p(O.
total,"count")} operators`):t.gpu_events?j("Attributed",p(h,"share"),"of GPU time to operators"):null],B=s.window?k("Dev\
ice time",b+(e.device_use.length>1?" on all devices":""),Z([{name:"",parts:s.parts,whole:s.window}])):null;return x("ove\
rview","Overview",null,ni(n),d("div",{class:"tiles"},L),B,J([6,6],k("Trace",null,oi(t)),k("Links",null,ii(t,h))))}function si(n){
return`steps: ${n.filter(e=>e.phase!=="all").map(e=>`${e.steps} ${e.phase}`).join(", ")}`}function ni(n){let t=n.ranks.length>
1,e=[...n.warnings,...n.ranks.flatMap(s=>s.analysis.damage.map(o=>t?`Rank ${s.label}: ${o}`:o))];return lt("warnings",e)}
function oi(n){let{analysis:t}=n,e=[["File",n.file]];n.rank!==null&&e.push(["Rank",String(n.rank)]);for(let[s,o]of Object.
entries(t.devices)){let i=Object.entries(o.peaks).map(([a,l])=>`${a} ${p(l,"flop/s")}`);e.push([`Device ${s}`,[o.name??"\
not named in the trace",o.known_as&&o.known_as!==o.name?`(${o.known_as})`:"",o.memory_gb_s?`· at best ${[...i,p(o.memory_gb_s*
1e9,"bytes/s")].join(", ")}`:"· peaks unknown"].filter(Boolean).join(" ")])}return e.push(["Streams",String(t.streams.length)],
["Operators",p(n.host_calls,"count")],["Runtime calls",n.runtime_calls?`${p(n.runtime_calls,"count")}, ${p(t.host.runtime_ns,
"ns")}`:"0"]),t.host.loading_ns&&e.push(["Data loading",p(t.host.loading_ns,"ns")]),gt(e)}function ii(n,t){let e=n.coverage,
s=[...e?.notes??[],...n.analysis.notes],o=e?[["Operators",`${p(e.linked,"count")} of ${p(e.total,"count")} linked (${p(e.
linked/(e.total||1),"share")}) by ${e.method}`],["Certain",p(e.certain,"count")],["Equivalent",`${p(e.equivalent,"count")}\
; the structure fits, but another run or iteration could be meant`],["GPU time",`${p(e.attached_ns/(e.gpu_ns||1),"share")}\
 of ${p(e.gpu_ns,"ns")} attached to operators`]]:[["Kind","Kineto trace alone, not linked with an Execution Trace"],n.gpu_events?
["GPU time",`${p(t,"share")} launched by operators of the trace`]:null];return[gt(o),lt("notes",s)]}function hn(n,t){if(!t.
timeline.ts.length)return null;let e=E.timeline=new ge(t.timeline,t.analysis.devices);e.mount();let s=p(t.timeline.resolution,
"ns"),o=t.timeline.resolution?t.timeline.tiles?` Calls shorter than ${s} are drawn together until the view is close enou\
gh.`:` Calls shorter than ${s} are merged with their neighbours.`:"",i=t.timeline.hidden?` ${t.timeline.hidden} lanes wi\
th the least time are left out.`:"";return x("timeline","Timeline",`${t.gpu_events?"Streams on top, CPU threads below wi\
th their calls nested; pale where short calls leave gaps.":"CPU threads with their calls nested; pale where short calls \
leave gaps."}${o}${i}`,k(null,null,e.node))}var ai="Communication time beyond that of the rank with the least: time spent waiting for others";function Ue(n){return n.
rank!==null&&n.label===String(n.rank)?`rank ${n.rank}`:n.label}function dn(n){if(n.ranks.length<2)return null;let t=n.ranks.
map(h=>({rank:h,use:ye(h)})),e=t.map(({rank:h,use:u},m)=>({place:m,name:Ue(h),file:h.file,span:h.span_ns,latency:h.analysis.
iterations.mean_latency_ns,busy:u.window?u.busy/u.window:null,computing:u.window?u.parts[0].ns+u.hidden:null,communication:u.
hidden+u.parts[2].ns,exposed:u.parts[2].ns,idle:u.parts[4].ns,waiting:null,events:h.gpu_events,linked:h.coverage?h.coverage.
linked/(h.coverage.total||1):null})),s=Math.min(...e.map(h=>h.communication));for(let h of e)h.waiting=h.communication-s;
let o=h=>{let u=e.map(m=>m[h]).filter(m=>m!==null);return u.length?Math.max(...u)-Math.min(...u):null},i=e.reduce((h,u)=>u.
communication<h.communication?u:h),a=e.some(h=>h.communication>0),l=e.reduce((h,u)=>h+u.events,0),r=Math.max(...e.map(h=>h.
span));return x("job","Ranks","The ranks of the job side by side. A click on a bar shows that rank in the sections below\
.",d("div",{class:"tiles"},j("Ranks",String(e.length),`${p(l,"count")} GPU events`),j("Longest trace",p(r,"ns"),`${p(o("\
span"),"ns")} longer than the shortest`),j("Spread of computing",p(o("computing"),"ns"),"between the ranks that compute \
most and least"),a?j("Last to arrive",i.name,"shortest in communication: the others wait for it"):null),k("Device time b\
y rank",null,Z(t.map(({rank:h,use:u},m)=>({name:e[m].name,parts:u.parts,whole:u.window})),{click:nt})),S("Numbers by ran\
k",null,[c.text("name","Rank"),c.text("file","File"),c.ns("span","Length"),c.ns("latency","Mean iteration"),c.share("bus\
y","GPU busy"),c.ns("computing","Computing"),c.ns("communication","Communicating"),c.ns("exposed","Exposed",{hint:"Commu\
nication with no computing kernel beside it"}),c.ns("waiting","Beyond the least",{hint:ai}),c.ns("idle","Idle"),c.count(
"events","GPU events"),c.share("linked","Linked")],e,{sort:"name",name:"ranks",click:h=>nt(h.place)}))}var ri="The operators' FLOPs over the time of all their kernels, not of this one alone",li="Against the device's memory \
bandwidth; none where the data may have been in its cache",un=[c.count("count","Count"),c.ns("total_ns","Total"),c.ns("m\
ean_ns","Mean"),c.rate("flops_per_second","Rate")];function mn(n,t){let e=t.analysis.kernels.map((i,a)=>({...i,kind:t.kernel_kinds[a],
kindName:n.gpu_kinds[t.kernel_kinds[a]].name}));if(!e.length)return null;let s=e.filter(i=>i.intensity&&i.flops_per_second),
o=Object.keys(t.analysis.devices).length>1?c.count("device","Device"):null;return x("kernels","Kernels and roofline","Ev\
ery kernel against what the device can do at best: below the slope it waits for memory, below the roof for arithmetic. C\
ircles are larger the more time they take.",s.length?di(n,t,s):k("Roofline",null,tt("No kernel's FLOPs and bytes are kno\
wn: the trace has no shapes (record_shapes), or only operators that move data.")),S("Kernels",H(t,"kernels"),[c.code("ke\
rnel","Kernel"),c.text("kindName","Kind"),c.text("dtype","Type"),o,...un,c.rate("operator_flops_per_second","of operator",
{hint:ri}),c.share("flops_share","of peak",{hint:"FLOP/s against the device's peak for the element type"}),c.bandwidth("\
bytes_per_second","Memory",{hint:"Bytes of inputs and outputs per second, at least"}),c.bandwidth("most_bytes_per_second",
"at most",{hint:"The same where bytes are known; of experts at most"}),c.share("bytes_share","of bandwidth",{hint:li}),c.
other("intensity","FLOP/byte"),c.text("bound","Bound by"),c.code("ops","Operators")],e,{sort:"total_ns",name:"kernels",jump:ci}),
S("Matrix products",H(t,"gemms")??"batch × (m, k) · (k, n), over the time of all kernels of the operator",[c.code("op",
"Operator"),c.text("dtype","Type"),o,...["batch","m","n","k"].map(i=>c.count(i,i)),...un,c.share("flops_share","of peak",
{hint:"The efficiency: FLOP/s against the device's peak"}),c.bandwidth("bytes_per_second","Memory",{hint:"Inputs and out\
puts once"}),c.share("bytes_share","of bandwidth"),c.text("bound","Bound by"),c.code("kernels","Kernels")],t.analysis.gemms,
{sort:"total_ns",name:"gemms",jump:hi}))}var ci=({device:n,kernel:t,dtype:e})=>({gpu:!0,device:n,name:t,has:(s,o,i)=>(i.
dtypes[s.dtype[o]]??"")===e,orElse:{gpu:!0,device:n,name:t}}),hi=({device:n,op:t,batch:e,m:s,n:o,k:i,count:a,flops:l,kernels:r})=>({
gpu:!0,device:n,has:(h,u)=>h.flops[u]===l/a||h.flops[u]===2*e*s*o*i,fits:async(h,u)=>{let m=await ie(h);return m!==null&&
r.includes(u.names[h.name])&&u.names[m.name]===t}});function di(n,t,e){let s=t.analysis.devices[e[0].device],o=d("div"),
i=n.gpu_kinds,a=e.filter(T=>T.device===e[0].device),r=[...new Set(a.map(T=>T.dtype))].map(T=>[T,s.peaks[T]]).filter(T=>T[1]),
h=s.memory_gb_s?s.memory_gb_s*1e9:null,u=Math.max(0,...r.map(T=>T[1])),m=a.map(T=>T.intensity),f=a.map(T=>T.flops_per_second),
g=10**Math.floor(Math.log10(Math.min(...m))),b=10**Math.ceil(Math.log10(Math.max(...m,h?3*u/h:1))),M=10**Math.floor(Math.
log10(Math.min(...f))),w=10**Math.ceil(Math.log10(Math.max(...f,u)*1.01)),_=Math.max(...a.map(T=>T.total_ns)),O=ne(a,i),
L=()=>({color:y.value("muted"),width:1.5}),B=()=>({type:"line",symbol:"none",silent:!0,lineStyle:L()});D(o,400,()=>({grid:{
left:84,right:130,top:16,bottom:46},tooltip:P(T=>{let R=T.data.row;return R?N(W(R.kernel,180),[["operators",W(R.ops,60)],
["element type",R.dtype||"–"],["FLOP per byte",F(R.intensity)],["achieved",p(R.flops_per_second,"flop/s")],["of the wh\
ole operator",p(R.operator_flops_per_second,"flop/s")],["of peak",p(R.flops_share,"share")],["memory",`${p(R.bytes_per_second,
"bytes/s")} (${p(R.bytes_share,"share")})`],["calls",p(R.count,"count")],["total time",p(R.total_ns,"ns")],["bound by",R.
bound||"–"]]):null}),xAxis:C({type:"log",min:g,max:b,name:"FLOP per byte",nameLocation:"middle",nameGap:28,axisLabel:{
formatter:Zt}}),yAxis:C({type:"log",min:M,max:w,unit:"flop/s"}),series:[...r.map(([T,R])=>({...B(),tooltip:{show:!1},z:1,
data:[...h?[[Math.max(g,M/h),Math.max(g*h,M)],[R/h,R]]:[[g,R]],[b,R]].filter(z=>z[0]>=g),endLabel:{show:!0,formatter:`${T}\
 ${at(R,"flop/s")}`,color:L().color,fontSize:11.5}})),...r.length||!h?[]:[{...B(),data:[[g,g*h],[b,b*h]]}],...O.map(({name:T,
color:R})=>({name:T,type:"scatter",z:3,symbol:ct[Y(R)],itemStyle:{color:y.color(R),opacity:.78,borderColor:y.value("card"),
borderWidth:1},symbolSize:(z,it)=>7+26*Math.sqrt(it.data.row.total_ns/_),data:a.filter(z=>z.kindName===T).map(z=>({value:[
z.intensity,z.flops_per_second],row:z}))}))]}));let ot=`${s.known_as??s.name??"device"}${h?`, memory ${p(h,"bytes/s")}`:
", peaks unknown"} · ${a.length} of ${t.analysis.kernels.length} kernels, those whose FLOPs and bytes are known`;return k(
"Roofline",ot,I(O),o)}var ui=8;function zt(n,t,e,{mark:s=null}={}){let o=d("div"),i=t.slice(0,ui);D(o,230,()=>({grid:{left:74,right:24,top:18,
bottom:26},tooltip:P(l=>N(p(l[0].value[0],"ns"),l.map(r=>[r.seriesName,p(r.value[1],e)])),{trigger:"axis"}),xAxis:C({type:"\
value",...n.step?Rt(n):{min:0},unit:"ns",axisLabel:{hideOverlap:!0}}),yAxis:C({type:"value",min:0,unit:e}),dataZoom:[{type:"\
inside",filterMode:"none"}],series:i.map((l,r)=>({name:l.title,type:"line",step:"end",showSymbol:!1,lineStyle:{width:1.4,
color:y.color(r),type:Ze[Y(r)]},itemStyle:{color:y.color(r)},areaStyle:i.length===1?{color:y.color(r),opacity:.14}:void 0,
data:l.ts.map((h,u)=>[h,l.values[u]]),markPoint:s&&r===0?mi(s):void 0}))}));let a=t.length>i.length?` (the first ${i.length}\
 of ${t.length})`:"";return d("div",{},o,I(i.map((l,r)=>({name:l.title,color:r})),{more:a}))}function mi({ts:n,value:t,name:e}){
return{symbol:"circle",symbolSize:9,data:[{coord:[n,t],name:e}],label:{show:!0,position:"left",distance:8,color:y.value(
"text"),formatter:()=>e}}}var pi=({device:n,kind:t})=>({gpu:!0,device:n,has:(e,s,o,i)=>/^mem(cpy|set)/i.test(o.names[i])&&o.names[i].toLowerCase().
includes(t.toLowerCase())}),fi=({op:n,kernels:t})=>({gpu:!1,name:n,has:(e,s)=>e.device_events[s]===t.split(" | ").length,
orElse:{gpu:!1,name:n}});function pn(n,t){let{idle_causes:e,launches:s,queues:o,copies:i,sequences:a}=t.analysis;if(!s.length&&
!e.length&&!i.length)return null;let l=new Set(e.map(m=>m.device)).size>1,r=m=>o.find(({device:f,stream:g})=>f===m.device&&
g===m.stream),h=m=>t.counters.filter(f=>f.kind===m),u=e.map(m=>({...r(m),...m,number:m.stream,stream:Re(m,l)}));return x(
"launches","Launches, queues, copies","Why streams wait, how long launches take and wait, how fast copies are, and which\
 kernels operators launch in a row.",S("Why streams wait, and their queues",`host: launched late; kernel: under ${t.analysis.
consecutive_kernel_delay_ns/1e3} µs behind the event before; before and after: no event yet, none any more; a queue of 1\
,024 blocks the host`,[c.text("stream","Stream"),c.ns("idle_ns","Idle"),c.ns("host_wait_ns","Host",{like:"idle_ns"}),c.ns(
"kernel_wait_ns","Kernel",{like:"idle_ns"}),c.ns("other_ns","Other",{like:"idle_ns"}),c.ns("before_first_ns","Before",{like:"\
idle_ns"}),c.ns("after_last_ns","After",{like:"idle_ns"}),c.count("longest","Longest queue"),c.other("mean","Mean queue",
"launches"),c.ns("full_ns","Queue full")],u,{sort:"idle_ns",name:"idle_causes",jump:({device:m,number:f})=>({gpu:!0,device:m,
stream:f,gap:!0})}),h("queue").length?k("Launches in the queue","launched and not begun",zt(t,h("queue"),"")):null,S("La\
unches",null,[c.code("call","Call"),c.count("count","Events"),c.ns("median_call_ns","Call, median"),c.ns("median_delay_n\
s","Delay, median"),c.ns("max_delay_ns","Delay, longest"),c.count("short","Shorter than their call"),c.count("long_calls",
"Calls over 50 µs"),c.count("long_delays","Delays over 100 µs")],s,{sort:"count",name:"launches"}),i.length?k("Copies \
and memsets",null,h("bandwidth").length?zt(t,h("bandwidth"),"bytes/s"):null,G([c.text("kind","Kind"),c.count("device","D\
evice"),c.count("count","Count"),c.bytes("bytes","Bytes"),c.ns("total_ns","Sum of durations"),c.ns("busy_ns","At least o\
ne"),c.bandwidth("bytes_per_second","Bandwidth")],i,{sort:"bytes",name:"copies",jump:pi})):null,S("Sequences of kernels",
"what one call of an operator launches, in order, where it recurs; candidates for fusion",[c.code("op","Operator"),c.count(
"count","Calls"),c.ns("gpu_ns","GPU time"),c.ns("host_ns","Host time"),c.code("kernels","Kernels")],a.filter(m=>m.count>
1),{sort:"gpu_ns",name:"sequences",jump:fi}))}var gi={"allocator events":"what the allocators recorded (profile_memory)","tensors of the ET":"the tensors of the Execu\
tion Trace, from the call that makes a storage to the last that uses it"},fn=[c.code("operator","Allocated by"),c.text("\
category","Category")],gn=[c.count("blocks","Blocks"),c.bytes("bytes","Size")];function yn(n,t){let{memory:e,memory_holders:s,
memory_outliving:o}=t.analysis;if(!e.length)return null;let i=e.filter(a=>a.peak_bytes>=.01*e[0].peak_bytes);return x("m\
emory","Memory",`How much is allocated over time, who holds it at the peak, and what outlives its iteration; from ${gi[e[0].
source]}.`,...i.map(a=>yi(t,a,s)),S("Devices",null,[c.text("device","Device"),c.bytes("peak_bytes","Peak"),c.bytes("befo\
re_bytes","Before the trace"),c.bytes("end_bytes","At the end"),c.bytes("reserved_peak_bytes","Reserved",{hint:"By the a\
llocator, at most"}),c.count("blocks","Blocks"),c.bytes("allocated_bytes","Allocated in all")],e,{sort:"peak_bytes",filter:!1,
name:"memory",jump:a=>bn(t,a)}),S("What outlives its iteration","allocated in one iteration and held at its end, over al\
l iterations",[...fn,c.text("device","Device"),...gn,c.bytes("next_bytes","Freed in the next",{like:"bytes"}),c.bytes("k\
ept_bytes","Never freed",{like:"bytes"})],o,{sort:"bytes",name:"memory_outliving",jump:({operator:a})=>({gpu:!1,name:a})}))}
function yi(n,t,e){let s=e.filter(r=>r.device===t.device),o={};for(let r of s)o[r.category]=(o[r.category]??0)+r.bytes;let i=Object.
keys(o).sort((r,h)=>o[h]-o[r]),a={ts:t.peak_ns-n.start_ns,value:t.peak_bytes,name:`peak ${p(t.peak_bytes,"bytes")}`},l=r=>r.
device===t.number&&["allocated","reserved"].includes(r.kind);return k(`Allocated on ${t.device}`,`peak ${p(t.peak_bytes,
"bytes")} at ${p(a.ts,"ns")}`,zt(n,n.counters.filter(l),"bytes",{mark:a.ts>=0?a:null}),d("h3",{},"Held at the peak"),Z([
{name:"",whole:t.peak_bytes,parts:i.map((r,h)=>({name:r,color:h,ns:o[r]}))}],{unit:"bytes"}),G([...fn,c.code("modules","\
Module",{front:!0}),c.code("source","Line",{front:!0}),...gn,c.share("share","Share")],s.map(r=>({...r,modules:r.modules.
replaceAll("nn.Module: ",""),share:r.bytes/(t.peak_bytes||1)})),{sort:"bytes",name:`memory_holders ${t.device}`,jump:r=>bi(
r)??bn(n,t)}))}var bn=(n,{peak_ns:t})=>({from:t-n.start_ns,to:t-n.start_ns}),bi=({operator:n,source:t})=>E.timeline?.names.
has(ee(n))?{...t?$t(t,!1):{gpu:!1},name:n,orElse:{gpu:!1,name:n}}:null;var wi="GPU events launched with nothing of this table between",vi=[c.count("count","Calls"),c.ns("self_ns","Host self",
{like:"total_ns",hint:"On the host, without the calls inside"}),c.ns("total_ns","Host total",{hint:"On the host, with th\
e calls inside"}),c.ns("device_self_ns","GPU self",{like:"device_total_ns",hint:wi}),c.ns("device_total_ns","GPU total",
{hint:"With the GPU events launched inside"})];function wn(n,t){let{operators:e,modules:s}=t.analysis;if(!e.length&&!s.length)
return null;let o=e.some(r=>r.device_total_ns),i=vi.filter(r=>o||!r.key.startsWith("device")),a="GPU events of backward \
whose forward operator is inside",l=o?c.ns("backward_total_ns","Backward",{like:"device_total_ns",hint:a}):null;return x(
"operators","Operators and modules","Self is without what runs inside, total with it; an operator inside one of the same\
 name counts once.",S("By operator",H(t,"operators"),[c.code("op","Operator"),c.text("shapes","Shapes"),...i,c.count("la\
unches","GPU events")],e,{sort:o?"device_self_ns":"self_ns",name:"operators",jump:({op:r})=>({gpu:!1,name:r})}),S("By mo\
dule class",H(t,"modules")??"modules of one class at one place in one row",[c.code("module","Module or annotation",{indent:"\
depth"}),...i,l,c.text("path","In",{front:!0})],s,{sort:"",name:"modules",jump:ki}))}function ki({path:n,device_total_ns:t}){
let e=n.split(" / ").at(-1),s=new Map,o=new Map,i=(r,h,u)=>{let m=st(xt(r,h));return m===n&&Tt(u)===e||(m?`${m} / ${Tt(u)}`:
Tt(u))===n},a=(r,h)=>`${st((r.modules[h]??"").split(" / "))} / `.startsWith(`${n} / `),l=(r,h,u)=>{let m=r.get(h)??u();return r.
set(h,m),m};return{gpu:!1,has:({path:r},h,u,m)=>l(s,`${r[h]} ${m}`,()=>i(u,r[h],u.names[m])),orElse:{gpu:t>0,has:({module:r},h,u)=>l(
o,r[h],()=>a(u,r[h]))}}}var be=[["t1","T1","between operators","Gap between an operator and the next one of the same thread and caller"],["t2","\
T2","before the first launch","From an operator's start to its first launch"],["t3","T3","after the last launch","From t\
he end of an operator's last launch to its end"],["t4","T4","launching call","The runtime call itself, as measured"],["t\
5","T5","between launches","Between two launches of an operator; of one without launches its own time"]];function vn(n,t){
let{overheads:e,host_ops:s}=t.analysis,o=be.map(([l,r,h,u])=>({key:l,title:r,text:h,hint:u,...l==="t1"?e.t1:e.all[l]??{}})).
filter(l=>l.n);if(!o.length&&!s.length)return null;let i=[...new Set(["t2","t3","t5"].flatMap(l=>Object.keys(e[l])))].map(
l=>{let r=s.find(u=>u.op===l),h=u=>e[u][l]?e[u][l].mean*1e3:null;return{op:l,count:r?.count??null,total:r?.total_ns??null,
t2:h("t2"),t3:h("t3"),t5:h("t5"),launches:as(e.launches[l]??[]),n:Math.max(...["t2","t3","t5"].map(u=>e[u][l]?.n??0))}}),
a=Object.entries(e.t4).map(([l,r])=>({call:l,n:r.n,mean:r.mean*1e3,std:r.std*1e3,all:r.mean_with_outliers*1e3,outliers:r.
outliers,sum:r.mean_with_outliers*1e3*(r.n+r.outliers)}));return x("overheads","Launch overheads",`What the host spends \
around operators and launches, less ${e.cpu_event_overhead_us} µs for every event of the profiler; outliers left out.`,
J([5,7],k("The five overheads","mean; whiskers: one standard deviation",o.length?xi(o):tt("No operator of the trace laun\
ches anything.")),k("T4 by runtime call",null,a.length?_i(a):tt("The trace has no launches."))),k("By operator","topmost\
 operators; host time holds everything they call",G([c.code("op","Operator"),c.count("count","Count"),c.ns("total","Host\
 time"),c.ns("t2","T2",{hint:be[1][3]}),c.ns("t3","T3",{like:"t2",hint:be[2][3]}),c.ns("t5","T5",{hint:be[4][3]}),c.code(
"launches","Launches with")],i,{sort:"total",name:"overheads",jump:({op:l})=>({gpu:!1,name:l})})))}function _i(n){let t=[
c.code("call","Call"),c.count("n","Rows"),c.ns("mean","Mean"),c.ns("std","Deviation",{like:"mean"}),c.count("outliers","\
Outliers"),c.ns("all","Mean with them"),c.ns("sum","Sum")];return G(t,n,{sort:"sum",name:"t4"})}function xi(n){let t=d("\
div"),e=n.slice().reverse();return D(t,34*e.length+40,()=>({grid:{left:158,right:20,top:4,bottom:26},tooltip:P(s=>{let o=e[s.
dataIndex];return N(`${o.title}: ${o.hint}`,[["mean",`${F(o.mean)} µs`],["standard deviation",`${F(o.std)} µs`],["rows",
p(o.n,"count")],["clipped to 0",p(o.clipped,"count")],["outliers left out",p(o.outliers,"count")],["mean with them",`${F(
o.mean_with_outliers)} µs`]])}),xAxis:C({type:"value",min:0,splitNumber:4,axisLabel:{formatter:s=>`${s} µs`}}),yAxis:C(
{type:"category",data:e.map(s=>`${s.title} ${s.text}`),axisLine:{show:!1},axisLabel:{color:y.value("text")}}),series:[{type:"\
bar",barWidth:16,itemStyle:{color:y.color(0),borderRadius:[0,3,3,0]},data:e.map(s=>s.mean)},{type:"custom",silent:!0,z:5,
data:e.map((s,o)=>[Math.max(0,s.mean-s.std),s.mean+s.std,o]),encode:{x:[0,1],y:2},renderItem:(s,o)=>{let[i,a]=o.coord([o.
value(0),o.value(2)]),[l]=o.coord([o.value(1),o.value(2)]),r={stroke:y.value("text"),lineWidth:1.2,opacity:.75};return{type:"\
group",children:[[i,a,l,a],[i,a-4,i,a+4],[l,a-4,l,a+4]].map(([h,u,m,f])=>({type:"line",shape:{x1:h,y1:u,x2:m,y2:f},style:r}))}}}]})),
t}function kn(n,t){let e=t.path_rows;if(!e?.length||typeof e=="string")return null;let s=e.reduce((l,r)=>l+r.ns,0),o=new Map;
for(let{kind:l,ns:r}of e)o.set(l,(o.get(l)??0)+r);let i={...We},a=[...o].filter(([,l])=>l>0).sort((l,r)=>r[1]-l[1]);return a.
forEach(([l],r)=>i[l]??=[1,3,5,6,7,8,9][r%7]),x("path","Critical path",`The longest path of the replay: what does not li\
e on it can become faster without any gain. All rows together are ${p(s,"ns")}${t.step?", the part of this step":""}.`,k(
"By kind",null,Z([{name:"",whole:s,parts:a.map(([l,r])=>({name:l,color:i[l],ns:r}))}])),S("By kind, kernel, operator, mo\
dule and line",null,[c.text("kind","Kind"),c.ns("ns","Time"),c.share("share","Share"),c.count("count","Elements",{hint:"\
Runs of such work that follow one another on the path"}),c.code("kernel","Kernel or runtime call"),c.code("operator","Op\
erator"),c.text("module","Module",{front:!0}),c.code("place","Line",{front:!0})],e.map(l=>({...l,share:l.ns/(s||1)})),{sort:"\
ns",name:"critical_path",jump:$i}))}function $i({id:n,from:t,to:e}){let s=t===null?null:{from:t,to:e};return n<0?s:{...ut(
[n]),orElse:s}}var Mt=16,Ot=14,_n=26,Si=38,Mi=100,Ke=[{name:"Computing",color:4},{name:"Copy",color:9},{name:"Communication",color:2},{
name:"Host call",color:0}],xn={name:"Waits for the last to arrive",color:1},we={name:"Collective, all have come",color:3},
qe=class{constructor(t,e,s){this.job=t,this.labels=e,this.iterations=s,this.at=-1,this.from=0,this.to=t.span,this.width=
0,this.tops=[];let o=Si;for(let l of t.ranks)this.tops.push(o),o+=l.lanes.length*Mt+Ot+_n;this.height=o;let i="Ranks on \
one clock; keys w and s zoom, a and d move, n and p go to the next and previous collective",a="n and p, or the buttons, \
go from collective to collective.";this.canvas=d("canvas",{tabindex:0,role:"img","aria-label":i}),this.picked=d("div",{class:"\
picked",role:"status"},a),this.hover=d("div",{class:"hover",hidden:!0}),this.build(),this.whole={from:0,to:t.span},this.
view(0,t.span)}build(){let t=(l,r,h)=>d("button",{type:"button",title:r,onclick:h},l),e=this.iterations.length?d("select",
{"aria-label":"Iteration",onchange:l=>this.step(l.target.value)},d("option",{value:""},"All iterations"),this.iterations.
map((l,r)=>d("option",{value:r},l.name))):null;this.steps=e;let s=[t("‹ Collective","The one before (p)",()=>this.go(this.
at-1)),t("Collective ›","The next one (n)",()=>this.go(this.at+1)),t("Longest wait","The collective in which ranks wai\
t longest together",()=>this.go(this.worst()))],o=[t("‹","The iteration before",()=>this.turn(-1)),e,t("›","The next\
 iteration",()=>this.turn(1))],i=d("div",{class:"tools"},this.job.collectives.length?s:null,e?o:null,d("span",{class:"pu\
sh"}),t("+","Zoom in (w)",()=>this.zoom(.4)),t("−","Zoom out (s)",()=>this.zoom(2.5)),t("Fit","All of it: the whole jo\
b, or the step chosen",()=>this.view(this.whole.from,this.whole.to))),a=d("div",{class:"lanes ranks"},this.job.ranks.map(
(l,r)=>{let h=l.lanes.map(m=>d("i",{},m)),u=d("div",{class:"lane"},d("b",{},this.labels[r]),h);return u.style.top=`${this.
tops[r]-Mt}px`,u}));this.node=d("div",{},i,d("div",{class:"timeline"},a,d("div",{class:"frame"},this.canvas,this.hover)),
this.picked),this.canvas.addEventListener("keydown",l=>this.key(l)),this.canvas.addEventListener("wheel",l=>this.wheel(l),
{passive:!1}),this.canvas.addEventListener("pointerdown",l=>this.grab(l)),this.canvas.addEventListener("pointermove",l=>this.
point(l)),this.canvas.addEventListener("pointerleave",()=>this.hover.hidden=!0),this.canvas.addEventListener("click",l=>this.
click(l)),new ResizeObserver(()=>this.draw()).observe(this.canvas.parentNode)}view(t,e){let s=Math.min(Math.max(e-t,Mi),
this.job.span||1);this.from=Math.min(Math.max(0,t),Math.max(0,this.job.span-s)),this.to=this.from+s,this.canvas.dataset.
view=`${this.from} ${this.to}`,this.draw()}zoom(t,e=(this.from+this.to)/2){this.view(e-(e-this.from)*t,e+(this.to-e)*t)}go(t){
let e=this.job.collectives;if(!e.length)return;this.at=(t+e.length)%e.length;let s=e[this.at],o=Math.min(...s.start),i=Math.
max(...s.end);this.view(o-(i-o)*.6,i+(i-o)*.6),this.describe(s)}worst(){let t=e=>(e.wait??[]).reduce((s,o)=>s+o,0);return this.
job.collectives.reduce((e,s,o,i)=>t(s)>t(i[e])?o:e,0)}step(t){let e=this.iterations[Number(t)];e?this.view(e.start,e.end):
this.view(0,this.job.span)}turn(t){let e=this.iterations.length,s=this.steps.value===""?t>0?-1:e:Number(this.steps.value);
this.steps.value=(s+t+e)%e,this.step(this.steps.value)}describe(t){let e=(t.wait??[]).map((a,l)=>({wait:a,name:this.labels[t.
members[l]]})).filter(({wait:a})=>a>0);e.sort((a,l)=>l.wait-a.wait);let s=e.slice(0,8).map(({wait:a,name:l})=>`${l} wait\
s ${p(a,"ns")}`),o=s.length?`; ${s.join(", ")}${e.length>s.length?", …":""}`:"",i=`${v.format(this.at+1)} of ${v.format(
this.job.collectives.length)}`;this.picked.dataset.at=this.at,this.picked.replaceChildren(d("code",{},`${t.kind}${t.bytes>=
0?` ${p(t.bytes,"bytes")}`:""}`),` ${t.group?`group ${t.group}, `:""}${t.members.length} ranks, ${i}`,t.last===null?" · \
its ranks do not have to wait for each other":` · ${this.labels[t.last]} is the last to arrive${o}`)}key(t){let e=(this.
to-this.from)/5,s={w:()=>this.zoom(.6),s:()=>this.zoom(1/.6),a:()=>this.view(this.from-e,this.to-e),d:()=>this.view(this.
from+e,this.to+e),n:()=>this.go(this.at+1),p:()=>this.go(this.at-1),Escape:()=>this.view(0,this.job.span)}[{ArrowLeft:"a",
ArrowRight:"d","+":"w","-":"s"}[t.key]??t.key];!s||t.ctrlKey||t.metaKey||t.altKey||(t.preventDefault(),s())}wheel(t){t.ctrlKey&&
(t.preventDefault(),this.zoom(Math.exp(Math.max(-1,Math.min(1,t.deltaY/200))),this.time(t.offsetX)))}grab(t){let{from:e,
to:s}=this;Ut(o=>{let i=(t.clientX-o.clientX)/this.width*(s-e);this.view(e+i,s+i)})}time(t){return this.from+t/this.width*
(this.to-this.from)}x(t){return(t-this.from)/(this.to-this.from)*this.width}bar(t){return this.tops[t]+this.job.ranks[t].
lanes.length*Mt}collectiveAt(t,e){let s=this.time(t),o=2*(this.to-this.from)/this.width,i=(a,l,r)=>e>=l&&e<l+Ot&&a.start[r]-
o<=s&&s<=a.end[r]+o;return this.job.collectives.findIndex(a=>a.members.some((l,r)=>i(a,this.bar(l),r)))}click(t){let e=this.
collectiveAt(t.offsetX,t.offsetY);e<0||(this.at=e,this.draw(),this.describe(this.job.collectives[e]))}point(t){let{offsetX:e,
offsetY:s}=t,o=this.collectiveAt(e,s),i=o>=0?this.collective(this.job.collectives[o]):this.blockAt(e,s);this.hover.hidden=
!i,i&&(this.hover.replaceChildren(N(i[0],i[1].slice(0,16))),this.hover.style.left=`${Math.min(e+14,Math.max(0,this.width-
this.hover.offsetWidth-4))}px`,this.hover.style.top=`${s+14}px`)}collective(t){let e=o=>t.wait?`, waits ${p(t.wait[o],"n\
s")}`:"",s=(o,i)=>[this.labels[o],p(t.end[i]-t.start[i],"ns")+e(i)];return[t.kind,t.members.map(s)]}blockAt(t,e){let s=this.
tops.findLastIndex(h=>e>=h),o=this.job.ranks[s],i=o?Math.floor((e-this.tops[s])/Mt):-1,a=this.time(t);if(!o||i<0||i>=o.lanes.
length)return null;let l=o.ts.findIndex((h,u)=>o.lane[u]===i&&h<=a&&a<=h+o.dur[u]);if(l<0)return null;let r=o.count[l];return[
this.job.names[o.name[l]],[[this.labels[s],o.lanes[i]],["time",p(o.dur[l],"ns")],r>1?["together",`${v.format(r)} events,\
 the longest named`]:["kind",Ke[o.kind[l]].name]]]}draw(){let t=this.canvas.parentNode?.clientWidth;if(!t)return;this.width=
t;let e=devicePixelRatio||1;this.canvas.width=t*e,this.canvas.height=this.height*e,this.canvas.style.width=`${t}px`,this.
canvas.style.height=`${this.height}px`;let s=this.canvas.getContext("2d");s.scale(e,e),this.drawAxis(s),this.job.ranks.forEach(
(i,a)=>this.drawRank(s,i,a));let o=this.job.collectives.map((i,a)=>({one:i,at:a})).filter(({one:i})=>Math.min(...i.start)<=
this.to&&Math.max(...i.end)>=this.from);for(let{one:i,at:a}of o)this.drawJoint(s,i,a===this.at);for(let{one:i,at:a}of o)
this.drawBars(s,i,a===this.at)}drawAxis(t){let e=this.to-this.from,s=e/Math.max(2,this.width/130),o=10**Math.floor(Math.
log10(s)),i=[1,2,5,10].map(a=>a*o).find(a=>a>=s)??o;t.font=`12px ${y.value("sans")}`;for(let a=Math.ceil(this.from/i)*i;a<=
this.to;a+=i)t.fillStyle=y.value("line"),t.fillRect(this.x(a),0,1,this.height),t.fillStyle=y.value("muted"),t.fillText(at(
a,"ns"),this.x(a)+4,13)}drawRank(t,e,s){let o=this.tops[s];t.fillStyle=y.value("line"),t.fillRect(0,o-_n+8,this.width,1);
let i=Ke.map(({color:a})=>Vt(t,a));for(let a=0;a<e.ts.length;a++){let l=this.x(e.ts[a]),r=this.x(e.ts[a]+e.dur[a]);r<0||
l>this.width||(t.fillStyle=i[e.kind[a]],t.fillRect(Math.max(-1,l),o+e.lane[a]*Mt+1,Math.max(1,Math.min(r,this.width+1)-Math.
max(-1,l)),Mt-3))}}drawJoint(t,e,s){t.fillStyle=y.color(we.color),t.strokeStyle=s?y.value("text"):y.color(we.color),t.lineWidth=
s?1.5:.75;for(let o=0;o+1<e.members.length;o++){let i=this.bar(e.members[o])+Ot-2,a=this.bar(e.members[o+1])+1;t.globalAlpha=
s?.3:.14,t.beginPath(),t.moveTo(this.x(e.start[o]),i),t.lineTo(this.x(e.end[o]),i),t.lineTo(this.x(e.end[o+1]),a),t.lineTo(
this.x(e.start[o+1]),a),t.closePath(),t.fill(),t.globalAlpha=s?1:.5,t.stroke()}t.globalAlpha=1}drawBars(t,e,s){e.members.
forEach((o,i)=>{let a=this.bar(o)+1,l=this.x(e.start[i]),r=Math.max(l+1,this.x(e.end[i])),h=e.wait?Math.min(r,this.x(e.start[i]+
e.wait[i])):l;t.fillStyle=Vt(t,xn.color),t.fillRect(l,a,h-l,Ot-3),t.fillStyle=Vt(t,we.color),t.fillRect(h,a,r-h,Ot-3),e.
last===o&&(t.fillStyle=y.value("text"),t.beginPath(),t.moveTo(l-5,a-1),t.lineTo(l+5,a-1),t.lineTo(l,a+6),t.fill()),s&&(t.
strokeStyle=y.value("text"),t.lineWidth=1.5,t.strokeRect(l,a,r-l,Ot-3))})}};function $n(n){let t=n.job;if(!t)return null;
let e=n.ranks.map(Ue),s=t.ranks[0].begin-t.ranks[0].first,o=n.ranks[0].analysis.iteration_list.map(g=>({name:g.name,start:g.
start+s,end:g.end+s})),i=new qe(t,e,o),a=t.ranks.map((g,b)=>({...g,at:b,label:e[b]})),l=t.collectives.map((g,b)=>({at:b,
kind:g.kind,group:g.group,bytes:g.bytes<0?null:g.bytes,start:Math.min(...g.start),length:Math.max(...g.end)-Math.min(...g.
start),waited:g.wait?.reduce((M,w)=>M+w,0)??null,longest:g.wait?Math.max(...g.wait):null,last:g.last===null?null:e[g.last]}));
if(n.ranks[0].step&&o.length){let{start:g,end:b}=o[0];i.whole={from:g,to:b},i.view(g,b)}Qt(i);let r=Ke.filter((g,b)=>t.ranks.
some(M=>M.kind.includes(b))),h=g=>{i.node.scrollIntoView({block:"nearest"}),i.go(g.at)},u=a.some(g=>g.offset!==null)?"Cl\
ocks are set by the collectives that no rank can leave before all have come: these end at the same time.":"No collective\
 joins the ranks, so their clocks are as recorded.",m=[t.left_out?`${v.format(t.left_out)} collectives with the least wa\
iting are left out`:null,t.unmatched?`${v.format(t.unmatched)} that not all ranks of the group have alike`:null].filter(
Boolean),f=n.many?`Streams of the ${t.ranks.length} ranks shown in detail, of ${v.format(n.many.numbers.length)},`:"Stre\
ams of all ranks,";return x("axis","Ranks on one clock",`${f} and below them the collectives, joined from rank to rank; \
a triangle marks the rank that came last. ${u}`,k(null,null,I([...r,we,xn]),i.node),S("Collectives",m.join("; ")||"a cli\
ck on a row shows it above",[c.ns("start","At"),c.text("kind","Collective"),c.text("group","Group"),c.bytes("bytes","Mes\
sage"),c.ns("length","From first to last",{hint:"From the first rank's start to the last one's end"}),c.ns("waited","Wai\
ted",{hint:"By all ranks together, for the last to arrive"}),c.ns("longest","Longest wait"),c.text("last","Last to arriv\
e")],l,{sort:"waited",name:"collectives",click:h}),S("Who waits for whom",null,[c.text("label","Rank"),c.count("collecti\
ves","Collectives",{hint:"Of those in which ranks wait for each other"}),c.count("last","Last to arrive"),c.ns("caused",
"Others waited for it"),c.ns("waited","Waited itself"),c.ns("offset","Clock ahead",{hint:"Of the lowest rank's; taken of\
f"}),c.ns("spread","Spread",{hint:"Median distance of single collectives from that"})],a,{sort:"caused",filter:!1,name:"\
waits",click:g=>nt(g.at)}))}var Oi=200;function Sn(n,t){let{sources:e,phases:s}=t.analysis;if(!e.length&&!s.some(a=>a.phase!=="not known"))return null;
let o=e.some(a=>a.device_self_ns),i=o?"device_self_ns":"host_ns";return x("source","Source",e.length?"Work counts to the\
 innermost line of own code that called it, backward work to that of its forward operator.":null,e.length?Ai(e,i,H(t,"so\
urces")):null,S("By source line",H(t,"sources"),[c.code("place","Line",{front:!0}),c.code("function","Function"),c.text(
"kind",""),...o?[c.ns("device_self_ns","GPU self",{like:"device_total_ns",hint:"GPU events that it launched itself"}),c.
ns("device_total_ns","GPU total",{hint:"With those of lines called from it"}),c.ns("backward_ns","Backward",{like:"devic\
e_total_ns",hint:"Part of GPU self"}),c.count("launches","GPU events"),c.ns("idle_ns","Idle caused",{hint:"The device ha\
d nothing to run until an event of this line"})]:[],c.ns("host_ns","Host",{hint:"Host time of the operators that it call\
ed"}),c.count("calls","Calls")],e.map(a=>({...a,place:`${a.file}:${a.line}`,kind:[a.own?"":"not own code",a.fused?`${a.fused}\
 fused`:""].filter(Boolean).join(", ")})),{sort:i,name:"sources",jump:Mn}),S("By phase",null,[c.text("phase","Phase"),c.
count("calls","Operators"),c.ns("host_ns","Host"),c.ns("device_ns","GPU"),c.share("share","Share"),c.count("launches","G\
PU events"),c.ns("idle_ns","Idle caused")],s,{sort:"",filter:!1,name:"phases",jump:Ci}))}var Mn=({place:n,device_self_ns:t})=>$t(
n,t>0),Ci=({phase:n,launches:t})=>({gpu:t>0,has:(e,s,o)=>(o.phases[e.phase[s]]||"not known")===n});function Ai(n,t,e){let s=new Map;
for(let u of n)u[t]>0&&s.set(u.file,[...s.get(u.file)??[],u]);let o=u=>u.reduce((m,f)=>m+f[t],0),i=Math.max(...n.map(u=>u[t]),
1),a=[...s].sort((u,m)=>o(m[1])-o(u[1])),l=d("div",{class:"files"}),r=d("input",{type:"search",placeholder:"Search files\
 and functions…","aria-label":"Search files"}),h=()=>{let u=r.value.toLowerCase(),m=Oi;l.replaceChildren();for(let[f,g]of a){
let b=f.toLowerCase().includes(u),M=g.filter(_=>b||_.function.toLowerCase().includes(u));if(!M.length||m<=0)continue;let w=M.
sort((_,O)=>_.line-O.line).slice(0,m);m-=w.length,l.append(d("h4",{},d("code",{},f)," ",q(p(o(g),"ns"))),...w.map(_=>{let O=d(
"span",{class:"heat"}),L=_[t]/i;return O.style.width=`${(100*L).toFixed(2)}%`,d("button",{type:"button",class:"line","da\
ta-line":`${f}:${_.line}`,title:`${f}:${_.line} ${_.function}`,onclick:B=>_t(Mn({..._,place:`${f}:${_.line}`}),B.currentTarget)},
O,d("span",{class:"number"},String(_.line)),d("code",{},_.function),d("span",{class:"push"},p(_[t],"ns")))}))}};return r.
addEventListener("input",h),h(),k("Lines by file",e,r,l)}var Ei=[ae,Hs,dn,$n,cn,hn,kn,Vs,Es,wn,Sn,Rs,mn,vn,Ws,pn,yn,Ts,Ys],On=0;async function Ve(n,t=null){let{report:e}=E,s=++On,
o=e.ranks[n],i=t===null?null:o.steps[t],a=i?await Ps(e,i):e;if(typeof o.path_rows=="string"&&(o.path_rows=await vt(o.path_rows)),
s!==On)return;let l=a.ranks[n];for(let h of V)h.instance?.dispose();V.clear(),rs(),e.difference||is(o.analysis.kernel_labels);
let r=e.difference?Is:Ei;A("sections").replaceChildren(...r.map(h=>h(a,l)).filter(Boolean)),cs(),i&&E.timeline?.showStep(
i);for(let h of V)h.draw();A("subtitle").textContent=[...new Set(Object.values(l.analysis.devices).map(h=>h.name??"unnam\
ed device")),...i?[`only ${i.name}`]:[]].join(", "),Li(),ze(),document.documentElement.dataset.step=i?String(i.number):""}
var Xe=null;function Li(){Xe?.disconnect();let n=new Set;Xe=new IntersectionObserver(t=>{for(let s of t)s.isIntersecting?
n.add(s.target):n.delete(s.target);let e=[...document.querySelectorAll("section")].find(s=>n.has(s));us(e?.id)},{rootMargin:"\
-70px 0px -55% 0px"});for(let t of document.querySelectorAll("section"))Xe.observe(t)}var Cn={auto:"◐ Auto",light:"☀ L\
ight",dark:"☾ Dark"};function Gt(n){y.choice=n,y.apply(),A("theme").textContent=Cn[n];for(let t of V)t.draw()}function Ti(){
document.documentElement.classList.add("paper"),y.paper=!0,Gt(y.choice);for(let n of wt)n();for(let n of document.querySelectorAll(
"details"))n.classList.contains("more")&&(n.open=!0)}function Pi(){document.documentElement.classList.remove("paper"),y.
paper=!1,Gt(y.choice);for(let n of wt)n()}async function Ni(){E.report=JSON.parse(A("report").textContent),E.draw=Ve;let{
report:n}=E;ds(),addEventListener("hashchange",ze),A("title").textContent=n.title,A("footer").textContent=`etplus ${n.version}\
 · times are as the profiler recorded them, its own cost included · charts by Apache ECharts`;let t=n.ranks.length>1;A(
"rank-pick").hidden=!t,A("rank").append(...n.ranks.map((o,i)=>d("option",{value:i},o.label))),A("rank").addEventListener(
"change",()=>nt(Number(A("rank").value))),A("step").addEventListener("change",()=>Ve(Number(A("rank").value),A("step").value===
""?null:Number(A("step").value))),Le(n.ranks[0]);let e=Object.keys(Cn);A("theme").addEventListener("click",()=>Gt(e[(e.indexOf(
y.choice)+1)%e.length])),y.system.addEventListener("change",()=>y.choice==="auto"&&Gt("auto")),addEventListener("beforep\
rint",Ti),addEventListener("afterprint",Pi);let s=0;addEventListener("resize",()=>{clearTimeout(s),s=window.setTimeout(()=>{
for(let o of V)o.instance?.resize()},120)}),Gt("auto"),await Ve(0),document.documentElement.dataset.ready="yes"}Ni();})();

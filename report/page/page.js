"use strict";(()=>{function h(s,t={},...e){let n=document.createElement(s);for(let[o,i]of Object.entries(t))i==null||i===!1||(o==="class"?n.
className=i:o.startsWith("on")?n.addEventListener(o.slice(2),i):o.startsWith("--")?n.style.setProperty(o,i):n.setAttribute(
o,i===!0?"":i));return n.append(...e.flat(1/0).filter(o=>o!=null)),n}var H=s=>s?h("small",{},s):null,et=s=>h("p",{class:"\
none"},s);function at(s,t){return t.length?h("ul",{class:s},t.map(e=>h("li",{},e))):null}function gt(s){return h("dl",{class:"\
facts"},s.filter(t=>t!==null).flatMap(([t,e])=>[h("dt",{},t),h("dd",{},e)]))}function Xt(s,t=()=>{}){let e=n=>{removeEventListener(
"pointermove",s),removeEventListener("pointerup",e),t(n)};addEventListener("pointermove",s),addEventListener("pointerup",
e)}function wt(s,t,e,n){let o={Enter:s.shiftKey?-1:1,ArrowDown:1,ArrowUp:-1}[s.key];!o||!e||(s.preventDefault(),n(t<0&&o<
0?e-1:(t+o+e)%e))}async function Vt(s){try{return await navigator.clipboard.writeText(s),!0}catch{let t=h("textarea",{"a\
ria-hidden":"true",class:"away"});t.value=s,document.body.append(t),t.select();let e=document.execCommand("copy");return t.
remove(),e}}function $e(s){let{top:t,bottom:e}=s.getBoundingClientRect();(t<60||e>innerHeight)&&s.scrollIntoView({behavior:"\
instant",block:"start"})}var Ye={light:["#2f52bd","#dfa01e","#cc3a32","#40b8ae","#388f45","#dc6aa5","#7a3fc4","#9cc6fa","#845c3e","#8d96a3","#ccd\
5e6"],dark:["#5579ee","#f7cc62","#ee5f54","#6fdccf","#5ab566","#e276b1","#8650dc","#a9ccff","#a5774f","#a0abb8","#47546e"]},
Me=[0,0,1,1,0,2,2,2,3,3,0],Jt=6,Cn={1:[[0,4,2,2],[2,2,2,2],[4,0,2,2]],2:[[1,1,2,2],[4,4,2,2]],3:[[0,2,6,2]]},lt=["circle",
"triangle","diamond","rect"],Ze=["solid","dashed","dotted",[9,3,2,3]],g={choice:"auto",system:globalThis.matchMedia?.("(\
prefers-color-scheme: dark)"),paper:!1,get name(){return this.paper?"light":this.choice==="auto"?this.system.matches?"da\
rk":"light":this.choice},color(s){let t=Ye[this.name];return typeof s=="string"?this.value(s):t[s%t.length]},value(s){return getComputedStyle(
document.documentElement).getPropertyValue(`--${s}`).trim()},apply(){document.documentElement.dataset.theme=this.name,Ln()}},
V=s=>typeof s=="string"?0:Me[s%Me.length],Lt=["#10151c","#ffffff"];function st(s){let t=e=>{let[n,o]=[Je(e),Je(s)].sort(
(i,r)=>i-r);return(o+.05)/(n+.05)};return t(Lt[0])>=t(Lt[1])?Lt[0]:Lt[1]}function Je(s){let[t,e,n]=[1,3,5].map(o=>{let i=parseInt(
s.slice(o,o+2),16)/255;return i<=.03928?i/12.92:((i+.055)/1.055)**2.4});return .2126*t+.7152*e+.0722*n}var Qe=s=>st(s)===
Lt[0]?"rgb(255 255 255 / 45%)":"rgb(0 0 0 / 28%)",Se=new Map;function ts(s,t){let e=`${s} ${t}`;if(!Se.has(e)){let n=h("\
canvas",{width:Jt,height:Jt}),o=n.getContext("2d");o.fillStyle=s,o.fillRect(0,0,Jt,Jt),o.fillStyle=Qe(s);for(let i of Cn[t])
o.fillRect(...i);Se.set(e,n)}return Se.get(e)}function U(s){let t=g.color(s),e=V(s);return e?{image:ts(t,e),repeat:"repe\
at"}:t}function Yt(s,t){let e=g.color(t),n=V(t);return n?s.createPattern(ts(e,n),"repeat")??e:e}var An={1:s=>`repeating-\
linear-gradient(135deg, transparent 0 2px, ${s} 2px 4px)`,2:s=>`radial-gradient(${s} 1.2px, transparent 1.4px) 0 0 / 4px\
 4px`,3:s=>`repeating-linear-gradient(transparent 0 2px, ${s} 2px 4px)`},Zt=s=>typeof s=="string"?`var(--${s})`:`var(--p\
attern-${s}), var(--color-${s})`;function Ln(){Ye[g.name].forEach((s,t)=>{let e=An[Me[t]]?.(Qe(s))??"none";document.documentElement.
style.setProperty(`--color-${t}`,s),document.documentElement.style.setProperty(`--pattern-${t}`,e)})}var Qt=(s,t)=>t.map((e,n)=>[e+s,1e3**n]),Tt={ns:[["ns",1],["µs",1e3],["ms",1e6],["s",1e9]],bytes:Qt("B",["","k","M","G",
"T"]),flop:Qt("FLOP",["","k","M","G","T","P"]),"flop/s":Qt("FLOP/s",["","k","M","G","T","P"]),"bytes/s":Qt("B/s",["","k",
"M","G","T"])};function te(s,t){let e=Tt[s],n=e[0];for(let o of e)Math.abs(t)>=o[1]&&(n=o);return n}var b=new Intl.NumberFormat(
"en-US",{maximumFractionDigits:0});function D(s){if(s===0)return"0";let t=Math.abs(s);if(t>=1e3)return b.format(s);if(t<
.001)return s.toExponential(1);let e=Math.max(0,2-Math.floor(Math.log10(t)));return s.toFixed(Math.min(e,6))}function ee(s){
let t=100*s;return t===0||t===100?String(t):t<.1&&t>0?"< 0.1":t.toFixed(1)}function m(s,t){if(s==null||Number.isNaN(s))return"\
–";if(t==="share")return`${ee(s)} %`;if(t==="count")return b.format(s);if(!Tt[t])return t?`${D(s)} ${t}`:D(s);let[e,n]=te(
t,s);return`${D(s/n)} ${e}`}function rt(s,t){return m(s,t).replace(/(\.\d*?)0+(?= |$)/,"$1").replace(/\.(?= |$)/,"")}function Tn(s){
let t=Math.abs(s);return t>=1e3?b.format(s):s.toFixed(t>=100?1:t>=10?2:3)}var Y=({unit:s})=>s==="text"||s==="name",Pn={share:"\
%","flop/byte":"FLOP/byte","×":"×"};function es(s,t,e){return typeof s=="boolean"?s?"yes":"":t==="share"?ee(s):t==="co\
unt"||t==="tokens"||s===0||t==="number"&&Number.isInteger(s)?b.format(s):!Tt[t]||e===1?D(s):Math.abs(s/e)<.005?m(s,t):Tn(
s/e)}function ss(s,t){if(!Tt[s.unit])return[Pn[s.unit]??"",1];let e=t.map(n=>Math.abs(n[s.like??s.key]??0)).filter(n=>n>
0);return e.sort((n,o)=>n-o),te(s.unit,e.length?Math.sqrt(e[e.length>>1]*e[e.length-1]):0)}function ns(s,t){let e=t==="F\
LOP/s"?"flop/s":t;return Number.isInteger(s)&&!Tt[e]&&e!=="share"?`${b.format(s)} ${t}`:m(s,e)}var J=(s,t)=>`${b.format(
s)} ${t}${s===1?"":"s"}`,Pt=s=>`${(s/1e6).toFixed(6)} ms`;function se(s){let t=Math.round(Math.log10(s));return t>=4||t<=
-3?`10${[...String(t)].map(e=>e==="-"?"⁻":"⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(e)]).join("")}`:String(s)}var os=s=>`${s<
0?"−":"+"}${(100*Math.abs(s)).toFixed(2)} %`;var q=new Set;function ne(s){q.add({draw:()=>s.draw(),instance:{dispose(){},resize:()=>s.draw()}})}function z(s,t,e,n=()=>{}){
let o={node:s,instance:null,draw:i};s.style.height=`${t}px`,s.classList.add("chart"),q.add(o);function i(){o.instance?.dispose(),
o.instance=echarts.init(s,null,{renderer:"canvas"});let r=s.hasAttribute("aria-label");o.instance.setOption({...Nn(),aria:{
enabled:!r},...e()}),n(o.instance)}return o}function Nn(){return{animation:!1,textStyle:{fontFamily:g.value("sans"),color:g.
value("text")},backgroundColor:"transparent",tooltip:P()}}function P(s,t={}){return{confine:!0,backgroundColor:g.value("\
card"),borderColor:g.value("line"),borderWidth:1,padding:[7,10],textStyle:{color:g.value("text"),fontSize:12.5},transitionDuration:0,
extraCssText:"box-shadow:0 6px 20px rgb(0 0 0 / 18%);border-radius:8px;",formatter:s,...t}}function O({unit:s,axisLabel:t,
...e}={}){let n={lineStyle:{color:g.value("line")}},o={color:g.value("muted"),fontSize:12};return{axisLine:n,axisTick:{show:!1},
splitLine:n,minorSplitLine:{show:!1},axisLabel:{...o,formatter:s===void 0?void 0:r=>rt(r,s),...t},nameTextStyle:o,...e}}
function N(s,t){return h("div",{class:"tip"},h("b",{},s),t.filter(e=>e!==null).filter(([,e])=>e!=null).map(([e,n])=>h("d\
iv",{},h("span",{},e),h("span",{},n))))}function Nt(s){let t=h("span",{class:"swatch"});return t.style.background=Zt(s),
t}function j(s,{side:t=null,more:e=null}={}){let n=s.map(o=>h("span",{},Nt(o.color),o.name));return s.length?h("div",{class:"\
legend"},t?h("b",{},t):null,n,e):null}var oe=new Map;function is(s){oe.clear();for(let[t,e]of Object.entries(s))oe.set(t,e),t.length>400&&oe.set(`${t.slice(0,
399)}…`,e)}function B(s,t=60){return s=X(s),s.length<=t?s:`${s.slice(0,Math.ceil(t*.7))}…${s.slice(s.length-Math.floor(
t*.3)+1)}`}function X(s){return oe.get(s)??s.replace(/^(?:void |nn\.Module: )/,"")}var ie=s=>{let t=String(s??"");return t.
length>400?`${t.slice(0,399)}…`:t},jt=s=>s.replace(/^nn\.Module: /,"").replace(/(?:_\d+| × \d+)$/,""),nt=s=>s.map(jt).
join(" / ");function re(s,t){let e=String(s??"");return e.toLowerCase().includes(t)||X(e).toLowerCase().includes(t)}function rs(s){
let t=[];for(let e of s)t.length&&t[t.length-1][0]===e?t[t.length-1][1]+=1:t.push([e,1]);return t.map(([e,n])=>n>1?`${e}\
 ×${n}`:e).join(", ")}var E={report:null,timeline:null,cameFrom:null,draw:async()=>{}};function ct(){if(!E.timeline)throw new Error("the page \
has no timeline");return E.timeline}function as(){E.timeline=E.cameFrom=null,It.clear(),yt.clear()}var C=s=>document.getElementById(
s),It=new Map,yt=new Set;var ls={Device:["breakdown","kernels","idle","launches"],Host:["operators","source","flame","overheads"],Job:["job","axi\
s","communication"],More:["memory","serving","tables"]};function cs(){let s=({id:o,heading:i})=>h("a",{href:`#${o}`,"dat\
a-to":o,onclick:hs},i),t=[...document.querySelectorAll("section")].map(o=>({id:o.id,heading:o.querySelector("h2")?.textContent??
""})),e=({id:o})=>Object.keys(ls).find(i=>ls[i].includes(o))??o,n=new Map;for(let o of t)n.set(e(o),[...n.get(e(o))??[],
o]);C("nav").replaceChildren(...[...n].map(([o,i])=>i.length===1||E.report.difference?i.map(s):jn(o,i.map(s))).flat())}function jn(s,t){
let e=h("div",{class:"list"},t),n=h("details",{class:"group"},h("summary",{},s),e);return n.addEventListener("toggle",()=>{
if(!n.open)return;for(let r of C("nav").querySelectorAll("details[open]"))r!==n&&(r.open=!1);let{left:o,bottom:i}=n.getBoundingClientRect();
e.style.top=`${i}px`,e.style.left=`${Math.max(4,Math.min(o,innerWidth-e.offsetWidth-8))}px`}),n.addEventListener("keydow\
n",o=>{o.key==="Escape"&&(n.open=!1,n.firstChild.focus())}),n}function hs(){for(let s of C("nav").querySelectorAll("deta\
ils[open]"))s.open=!1}function ds(){document.addEventListener("click",s=>{s.target.closest("nav details")||hs()})}function us(s){
for(let t of C("nav").querySelectorAll("a"))t.classList.toggle("here",t.dataset.to===s);for(let t of C("nav").querySelectorAll(
"details"))t.firstChild.classList.toggle("here",!!t.querySelector("a.here"))}async function ms(s){let t=Uint8Array.from(atob(s),n=>n.charCodeAt(0)),e=new Blob([t]).stream().pipeThrough(new DecompressionStream(
"deflate"));return new Uint8Array(await new Response(e).arrayBuffer())}async function bt(s){return JSON.parse(new TextDecoder().
decode(await ms(s)))}async function Rt(s,t,e){let n=await ms(s),o={},i=0;for(let{name:r,size:a,delta:l}of t){let c=In(n.
subarray(i,i+=e*a),e,a);if(l)for(let d=1;d<e;d++)c[d]+=c[d-1];o[r]=c}return o}function In(s,t,e){let n=new(e>4?Float64Array:
Int32Array)(t);for(let o=0;o<t;o++){let i=s[(e-1)*t+o]<<24>>24;for(let r=e-2;r>=0;r--)i=i*256+s[r*t+o];n[o]=i}return n}function v(s,t,...e){let n=s?h("h3",{},s,H(t)):null;return h("div",{class:"card"},n,e)}function Z(s,...t){let e=t.filter(
n=>n!==null);return e.forEach((n,o)=>n.style.setProperty("--span",e.length>1?String(s[o]):"12")),h("div",{class:"columns"},
e)}function x(s,t,e,...n){return h("section",{id:s,"aria-labelledby":`${s}-heading`},h("h2",{id:`${s}-heading`},t),e?h("\
p",{class:"lead"},e):null,n)}function I(s,t,e){let[n,...o]=t.split(" ");return h("div",{class:"tile"},h("div",{class:"la\
bel"},s),h("div",{class:"value"},n,H(o.join(" "))),h("div",{class:"note"},e??""))}function G(s,t){let e=s.left_out[t];return e?
`${b.format(e)} further rows are left out`:null}function ae(s,t){return t.filter((e,n)=>s.some(o=>o.kind===n))}function Rn(s){let e=s.split(/(?<=[;\t\r\n])/).map(n=>/^[\s\p{C}\p{Z}]*[=+\-@|＝＋－＠｜﹢﹣﹦﹫−]/u.test(n)?
`'${n}`:n).join("");return/^[\t\r\n]/.test(e)?`'${e}`:e}function ps(s,t){let e=o=>{let i=typeof o=="string"?Rn(o):String(
o??"");return/[",\r\n]/.test(i)?`"${i.replaceAll('"','""')}"`:i};return[s.map(o=>o.key),...t.map(o=>s.map(i=>o[i.key]))].
map(o=>`${o.map(e).join(",")}
`).join("")}var zn=400;async function zt(s,{gpu:t,device:e,stream:n,name:o,codes:i,op:r,has:a}){let{tiles:l,details:c,step:d,data:u}=s,
f=await c.texts(),p=i??(o===void 0?null:fs(f.names,o)),w=r?fs(f.names,r):null,S=[];for(let y=0;y<l.first.length;y++){let k=u.
lanes[l.tiles.lane[y]];if(t!==void 0&&k.gpu!==t||n!==void 0&&k.stream!==n||e!==void 0&&k.device!==e)continue;let M=l.decoded.
get(y)??await l.decode(y),A=a||d?(await c.tile(y)).columns:{};for(let L=0;L<M.count;L++)p&&!p.has(M.name[L])||w&&!w.has(
M.op[L])||d&&A.step[L]!==d.number||a&&!a(A,L,f,M.name[L])||S.push({number:M.first+L,ts:M.ts[L],dur:M.dur[L]})}return S.sort(
(y,k)=>y.ts-k.ts||y.number-k.number)}var fs=(s,t)=>new Set(s.flatMap((e,n)=>e===t?[n]:[]));async function Oe(s,t,e){let n=t.
slice().sort((r,a)=>a.dur-r.dur||r.ts-a.ts);if(!e)return n[0]?.number??null;let{details:o}=s,i=await o.texts();for(let{number:r}of n.
slice(0,zn))if(await e(await o.of(r),i))return r;return null}function gs(s){let t=null,e=s[0]?.ts;for(let{ts:n,dur:o}of s)
n-e>(t?t.to-t.from:0)&&(t={from:e,to:n}),e=Math.max(e,n+o);return t}var vt=class{constructor(t,e,n=-1){this.timeline=t,this.
numbers=e,this.at=n}get text(){return this.numbers.length?`${b.format(this.at+1)} of ${b.format(this.numbers.length)}`:"\
none here"}async step(t){let e=this.numbers.length;e&&(this.at=this.at<0&&t<0?e-1:(this.at+t+e)%e,await this.timeline.inspector?.
select(this.numbers[this.at],{reveal:!0}))}};async function kt(s,t=null){let{timeline:e}=E;if(!e)return;if(E.cameFrom=t,s.from!==void 0||!e.inspector)return Ee(s);let n=[],
o=s.event;if(o===void 0){let i=await zt(e,s);if(!i.length&&s.orElse?.from!==void 0)return Ee(s.orElse);!i.length&&s.orElse&&
(i=await zt(e,s.orElse));let r=s.gap?gs(i):null;if(r)return Ee(r);n=i.map(a=>a.number),o=await Oe(e,i,s.fits)??await Oe(
e,i)}if(o==null)return e.picked.replaceChildren("Not in the timeline: what this row is of has no event there.");(s.fits||
!n.length)&&(n=s.events??[o]),e.hits=new vt(e,n,n.indexOf(o)),$e(e.node),await e.inspector.select(o,{reveal:!0}),e.canvas.
focus({preventScroll:!0}),e.node.dataset.jumped=o}function Ee({from:s,to:t,name:e}){let n=ct(),{names:o,found:i}=n.data,
r=s===void 0?i.find(l=>o[l.name]===e):null;if(r&&([s,t]=[r.ts,r.ts+r.dur]),s===void 0||t===void 0)return;$e(n.node);let a=Math.
max((t-s)*.15,20);n.show(s-a,t+a),n.inspector?.clear(),n.span?.set(s,t),n.canvas.focus({preventScroll:!0}),n.node.dataset.
jumped=`${s} ${t}`}function le(){let{cameFrom:s}=E;s?.isConnected&&(s.scrollIntoView({behavior:"instant",block:"center"}),
s.focus({preventScroll:!0}))}function ws(s,t){let e=E.timeline?.names;if(!e)return null;let n=s.find(o=>Y(o)&&e.has(ie(t[o.
key])));return n?{name:t[n.key]}:null}var Dn={kernel:["kernels",s=>t=>t.kernel===s],call:["operators",s=>t=>t.op===s],operator:[
"operators",s=>t=>t.op===s],source:["sources",s=>t=>s.startsWith(`${t.place} `)||s===t.place],modules:["modules",s=>t=>t.
path===nt(s)],module:["modules",s=>t=>t.path===nt(s.split(" / "))],phase:["phases",s=>t=>t.phase===s]};function Ce(s,t,e=null){
let[n,o]=Dn[s]??[],i=n?It.get(n):void 0,r=o?.(t);if(!i||!r||!i.has(r))return null;let a=e??(Array.isArray(t)?t.join(" / "):
String(t)),l=`Its row in the table of ${n}`;return h("button",{type:"button",class:e?null:"to-row",title:l,"data-row":s,
onclick:()=>i.find(r)},a)}var Ae=100,Bn=8;function $(s,t,e,n,o){return n.length?v(s,t,W(e,n,o)):null}var W=(s,t,e)=>new Le(s,t,e).node;function Fn({
key:s,unit:t,several:e},n){return e?new Set(n.map(o=>o[s])).size>1:n.some(o=>o[s]||t==="number"&&o[s]===0)}var Le=class{constructor(t,e,{
columns:n,sort:o=null,filter:i=!0,jump:r=null,click:a=null}={}){this.rows=e,this.name=t,this.click=a,this.columns=(n??E.
report.columns[t.split(/[ -]/)[0]]).filter(l=>Fn(l,e)),this.jump=r??(l=>ws(this.columns,l)),this.units=Object.fromEntries(
this.columns.map(l=>[l.key,ss(l,e)])),this.sortKey=o??this.columns.find(l=>!Y(l))?.key??"",this.isDescending=!this.columns.
some(l=>l.key===this.sortKey&&Y(l)),this.text="",this.most=Ae,this.at=-1,this.found=e,this.build(i&&e.length>Bn),t&&!t.startsWith(
"span-")&&(It.set(t,{find:l=>this.find(l),has:l=>e.some(l)}),e.length>Ae&&yt.add(()=>this.draw())),this.draw()}build(t){
let e=this.name.replaceAll("_"," ");this.headings=this.columns.map(i=>this.heading(i)),this.body=h("tbody"),this.said=h(
"span",{class:"said",role:"status"}),this.more=h("button",{type:"button",onclick:()=>this.showAll()},"Show all"),this.input=
h("input",{type:"search",placeholder:"Filter rows…","aria-label":`Filter ${this.name}`,oninput:()=>this.filter(this.input.
value),onkeydown:i=>wt(i,this.at,this.found.length,r=>this.go(r))});let n="The rows shown, with full names and whole num\
bers",o=h("button",{type:"button",class:"push",title:n,onclick:()=>this.copy()},"Copy as CSV");this.shown=h("table",{"da\
ta-table":this.name,"aria-label":e},h("thead",{},h("tr",{},this.headings)),this.body),this.body.addEventListener("click",
i=>{let r=i.target.closest("tr");r&&getSelection()?.isCollapsed&&this.act(r.sectionRowIndex)}),this.body.addEventListener(
"keydown",i=>this.key(i)),this.node=h("div",{},h("div",{class:t?"tools":"tools alone"},t?[this.input,this.said,this.more]:
this.said,o),h("div",{class:"table",tabindex:0,role:"region","aria-label":`${e} table`},this.shown))}heading(t){let e=()=>{
this.isDescending=this.sortKey===t.key?!this.isDescending:!Y(t),this.sortKey=t.key,this.at=-1,this.draw()},[n]=this.units[t.
key];return h("th",{class:Y(t)?"text":null,scope:"col"},h("button",{type:"button",title:t.hint,onclick:e},t.title,H(n)))}draw(){
let{columns:t,rows:e,sortKey:n,text:o}=this,i=t.filter(Y),r=g.paper?1/0:this.most;this.found=o?e.filter(a=>i.some(({key:l})=>re(
a[l],o))):e.slice(),n&&this.found.sort((a,l)=>Gn(a[n],l[n])*(this.isDescending?-1:1)),t.forEach(({key:a},l)=>{a===n?this.
headings?.[l].setAttribute("aria-sort",this.isDescending?"descending":"ascending"):this.headings?.[l].removeAttribute("a\
ria-sort")}),this.body.replaceChildren(...this.found.slice(0,r).map((a,l)=>this.row(a,l))),this.more.hidden=this.found.length<=
r,this.said.textContent=this.found.length<e.length?`${b.format(this.found.length)} of ${b.format(e.length)} rows`:this.more.
hidden?"":`first ${Ae} of ${b.format(e.length)} rows`}row(t,e){let n={"aria-current":e===this.at?"true":null,class:this.
click||E.timeline&&this.jump(t)?"go":null,tabindex:e===Math.max(0,this.at)?0:-1};return h("tr",n,this.columns.map(o=>Wn(
o,t,this.units[o.key])))}filter(t){this.text=t.toLowerCase(),this.at=-1,this.draw()}showAll(){this.most=1/0,this.draw()}async copy(){
let t=b.format(this.found.length);this.said.textContent=await Vt(ps(this.columns,this.found))?`${t} rows copied`:"copyin\
g is not allowed"}go(t,{focus:e=!1}={}){this.at=t,t>=this.most&&(this.most=1/0),this.draw();let n=this.body.children[t];
n.scrollIntoView({block:"nearest"}),e&&n.focus({preventScroll:!0}),this.said.textContent=`row ${b.format(t+1)} of ${b.format(
this.found.length)}`}find(t){return this.rows.some(t)?(this.input.value=this.text="",this.draw(),this.shown.scrollIntoView(
{behavior:"instant",block:"center"}),this.go(this.found.findIndex(t),{focus:!0}),this.body.children[this.at].scrollIntoView(
{behavior:"instant",block:"center"}),!0):!1}act(t){let e=this.found[t];if(this.click)return this.click(e);let n=E.timeline&&
this.jump(e);n&&kt(n,this.body.children[t])}key(t){let e=t.target.sectionRowIndex;if(e===void 0)return;if(t.key==="Enter")
return this.act(e);let n=Math.min(this.found.length,this.most),i={ArrowDown:e+1,ArrowUp:e-1,Home:0,End:n-1}[t.key];i!==void 0&&
(t.preventDefault(),i>=0&&i<n&&this.go(i,{focus:!0}))}};function Wn(s,t,[,e]){let n=t[s.key];if(n==null)return h("td",{class:Y(
s)?"text nothing":"nothing"},"–");if(Y(s)){let i=s.unit==="name"?h("code",{},X(String(n))):String(n),r=s.indent?`${(t[s.
indent]??0)*14}px`:null,a=s.front?h("bdi",{dir:"ltr"},i):i;return h("td",{class:s.front?"text front":"text",title:n,"--i\
ndent":r},a)}let o=s.unit==="share"?{class:"share","--share":`${Math.min(100,100*n)}%`}:{};return h("td",o,es(n,s.unit,e))}
function Gn(s,t){return s===t?0:s==null?-1:t==null?1:typeof s=="string"?s.localeCompare(t,"en",{numeric:!0}):s-t}var Un=64,K=class{constructor(t,e,n){this.packed=t,this.tiles=e,this.lanes=n,this.kept=new Map,this.unpacked=null}texts(){
return this.unpacked??=bt(this.packed.texts)}async of(t){let e=this.tiles.tileOf(t),{columns:n,sources:o,targets:i}=await this.
tile(e),r=t-this.tiles.first[e],a=await this.tiles.event(t);for(let l in n)a[l]=n[l][r];return a.gpu=this.lanes[a.lane].
gpu,a.sources=this.related(o,r),a.targets=this.related(i,r),a}tile(t){let e=this.kept.get(t);return e||(e=this.decode(t),
this.kept.set(t,e),this.kept.size>Un&&this.kept.delete([...this.kept.keys()][0])),e}async decode(t){let{packed:e}=this,n=this.
lanes[this.tiles.tiles.lane[t]].gpu?e.gpu:e.cpu,o=l=>Rt(e[l].data[t],e.links,e[l].count[t]),[i,r,a]=await Promise.all([Rt(
e.data[t],n,this.tiles.tiles.count[t]),o("sources"),o("targets")]);return{columns:i,sources:r,targets:a}}related({kind:t,
at:e,other:n},o){let i=[];for(let r=0;r<e.length;r++)e[r]===o&&i.push({kind:this.packed.relations[t[r]],other:n[r]});return i}static first(t,e){
return t.find(n=>n.kind===e&&n.other>=0)?.other??null}};var Pe={caller:["Called by","Calls"],operator:["Launching operator","Device work launched"],launch:["Launch call","Launc\
hes"],forward:["Forward operator","Backward operator"],data:["Reads data of","Data read by"],thread:["Operator before it\
 on the thread","Next operator of the thread"],stream:["Before it on the stream","Next on the stream"],event:["Waits for\
 (event)","Awaited by (event)"],sync:["Waits for the device (sync)","Awaited by the host (sync)"],thread_handoff:["Hande\
d over by thread","Hands over to thread"],comm:["Collective before it","Next collective of the group"],graph:["Graph dep\
endency on","Graph dependency of"]},_=(s,t,e,n)=>({key:s,label:t,value:e,text:n??String(e)}),vs=s=>s.filter(t=>t!==null).
filter(t=>(t.value??-1)!==-1),ht=(s,t,e,n)=>_(s,t,e,m(e,n)),Bt=(s,t,e)=>ht(s,t,e,"ns");function Te(s,t){return s.map((e,n)=>`\
[${e.join(", ")}]${t[n]?` ${t[n]}`:""}`).join(", ")}function ks(s){if(!s)return[];let{shapes:t,dtypes:e,outputs:n,output_dtypes:o}=s;
return[t.length?_("shapes","Inputs",t,Te(t,e)):null,n?.length?_("outputs","Outputs",n,Te(n,o)):null]}function xt(s,t){let e=[];
for(let n=t;n>0;n=s.path_parents[n])e.unshift(s.path_names[n]);return e}function xs(s,t,e){let n=t.modules?.[s.module],o=t.
stacks,i=o?.lines[o.line[s.entry]],r=[];for(let a=o&&s.entry>=0?s.entry:-1;a>=0;a=o.above[a])r.unshift(o.names[o.name[a]]);
return[s.phase>0?_("phase","Phase",t.phases[s.phase]):null,n&&!e.length?_("module","Module",n):null,i?_("source","Source\
 line",i):null,r.length?_("stack","Python stack",r,r.join(" › ")):null]}function _s(s,t,e){let n=s.links[t],o=s.evidence[n];
return o?[_("link",`Link of ${e} to the ET`,n),o.length?_("evidence","Evidence",o,o.join("; ")):null]:[]}function $s(s,t){
let e=xt(t,s.path);return vs([Bt("self_ns","Self time",s.self_ns),s.device_events>0?ht("device_events","Device events",s.
device_events,"count"):null,s.device_ns>0?Bt("device_ns","Device time",s.device_ns):null,...ks(t.signatures[s.signature]),
...Ms(t.generated[s.generated]),e.length?_("modules","Modules",e,e.join(" / ")):null,...xs(s,t,e),_("correlation","Corre\
lation",s.correlation),_("seq","Sequence number",s.seq),_("id","Node id",s.id),_("kineto_event","Kineto event",s.kineto_event),
s.step>=0?_("step","Iteration",t.steps[s.step]):null,..._s(t,s.link,"the operator")])}var Kn="above the peak: the peak o\
r the count is wrong for this kernel",ys=(s,t,e)=>_(s,t,e,e>1?`${m(e,"share")} (${Kn})`:m(e,"share")),bs=s=>Array.isArray(
s)&&s.length&&s.every(t=>Number.isInteger(t)&&t>0)?s.join(" × "):null,Dt=(s,t=1/0)=>typeof s=="number"&&s>=0&&s<=t,Hn={
grid:["Grid",bs],block:["Block",bs],context:["Context",String],"registers per thread":["Registers per thread",s=>Dt(s,1024)?
m(s,"count"):null],"shared memory":["Shared memory of a block",s=>Dt(s,2**24)?m(s,"bytes"):null],"blocks per SM":["Block\
s launched, by number of SMs",s=>Dt(s)?D(s):null],"warps per SM":["Warps launched, by number of SMs",s=>Dt(s)?D(s):null],
"est. achieved occupancy %":["Occupancy, estimated",s=>Dt(s,100)?s?`${D(s)} %`:"< 0.5 %":null]},qn={collective:["Collect\
ive"],dtype:["Dtype of the message"],in_nelems:["Elements in","count"],out_nelems:["Elements out","count"],bytes:["Commu\
nicated","bytes"],group_size:["Ranks of the group","count"],pg_name:["Group"],pg_desc:["Group is for"],pg_ranks:["Ranks"],
src_rank:["From rank"],dst_rank:["To rank"],seq:["Number in the group"],in_split:["Elements to each rank"],out_split:["E\
lements from each rank"],pg_first_rank:["First rank of the group"],inferred_messages:["Messages sent together (inferred)"]};
function Xn(s,t,e){return s==="inferred_messages"?t.map(n=>`${n.collective} ${n.dst_rank??n.src_rank??""}`.trim()).join(
", "):Array.isArray(t)?t.join(", "):e?m(t,e):String(t)}function Vn(s){return Object.entries(s).map(([t,e])=>{let[n,o]=qn[t],
i=e===null?"":Xn(t,e,o);return e===null||i===""?null:_(`comm.${t}`,n,e,i)})}function Jn(s){return Object.entries(s).map(
([t,e])=>{let[n,o]=Hn[t],i=e===null?null:o(e);return i===null?null:_(t,n,e,i)})}function Yn(s,t){if(!t?.memory_gb_s||s.bytes<
0)return!1;let e=t.cache_bytes??0,n=s.dur*t.memory_gb_s,o=e>0&&s.dur>0&&s.bytes>n&&s.bytes-2*e<=n;return s.bytes>e&&!o}function Ss(s,t,e,n,o){
let i=o[e.device??-1],r=t.dtypes[s.dtype],a=s.flops>=0&&s.dur?s.flops/s.dur*1e9:null,l=s.bytes>=0&&s.dur?s.bytes/s.dur*1e9:
null,c=i?.peaks?.[r]??null,d=Yn(s,i)?i.memory_gb_s*1e9:null,u=s.most_bytes>s.bytes,f=n?xt(t,n.path):[];return vs([_("cat\
egory","Category",t.categories[s.category]),n?_("operator","Operator",n.full):null,...n?ks(t.signatures[n.signature]):[],
f.length?_("modules","Modules",f,f.join(" / ")):null,...xs(s,t,f),Bt("delay","Launch delay",s.delay),_("device","Device",
e.device),_("stream","Stream",e.stream),...Ms(t.generated[s.generated]),...Jn(t.configs[s.config]??{}),s.flops>=0?ht("fl\
ops","FLOPs",s.flops,"flop"):null,a===null?null:ht("flops_per_second","Rate",a,"flop/s"),a===null||!c?null:ys("flops_sha\
re",`Share of the ${r} peak`,a/c),s.bytes>=0?ht("bytes",u?"Bytes, at least":"Bytes",s.bytes,"bytes"):null,u?ht("most_byt\
es","Bytes, at most",s.most_bytes,"bytes"):null,l===null?null:ht("bytes_per_second","Bandwidth",l,"bytes/s"),l===null||!d?
null:ys("bytes_share","Share of the bandwidth",l/d),...Vn(t.comms[s.comm]??{}),_("correlation","Correlation",s.correlation),
_("id","Node id",s.id),_("kineto_event","Kineto event",s.kineto_event),s.step>=0?_("step","Iteration",t.steps[s.step]):null,
s.reason>0?_("reason","Not attached",t.reasons[s.reason]):null,s.repeated>=0?_("repeated","Operator, by repetition in a \
later iteration",t.repeated[s.repeated]):null,..._s(t,s.link,"its operator"),...Zn(s,t)])}function Ms(s){if(!s)return[];
let{region:t,backward:e,handle:n,nodes:o=[],lines:i}=s,r=t?`${t}${e?", backward":""}${n===void 0?"":`, call ${n}`}`:"";return[
_("generated","Compiled as",s.name),r?_("region","Compiled region",r):null,o.length?_("nodes",o.length>1?"Fused of":"Mad\
e of",o,o.join(", ")):null,i.length>1?_("lines","Source lines (fused)",i,i.join("; ")):null,s.kernel_file?_("kernel_file",
"Kernel file",s.kernel_file):null,s.kernel_hash?_("kernel_hash","Kernel hash",s.kernel_hash):null,s.kernel_kwargs?_("ker\
nel_kwargs","Kernel constants",s.kernel_kwargs):null]}function Zn(s,t){let e=t.captured[s.captured];if(!e)return[];let n=t.
replays[s.replay],o=t.graphs[n?.graph],i=Te(e.shapes,e.dtypes);return[_("captured_by","Captured by",e.name),i?_("capture\
d_shapes","Captured inputs",e.shapes,i):null,e.modules.length?_("captured_modules","Captured in",e.modules,e.modules.join(
" / ")):null,_("captured_link","Link to the capture",t.links[s.captured_link]),n?.evidence.length?_("captured_evidence",
"Evidence for the graph",n.evidence,n.evidence.join(", ")):null,n?.candidates>1?_("candidates","Graphs that fit equally",
n.candidates):null,o?_("graph","Graph",o.index,Qn(o)):null]}function Qn({index:s,file:t,batch_size:e}){return`${s} of ${t}${e===
null?"":`, batch size ${e}`}`}function to(s,t){let{stacks:e}=s;return t>=0&&e?.lines[e.line[t]]?.replace(/ \(.*\)$/s,"")||""}var Os=s=>s?.shapes.map(t=>`\
[${t.join(",")}]`).join(",")??"";async function ce(s){let t=s.gpu?K.first(s.sources,"operator"):s.number;return t===null?
null:ct().details.of(t)}async function Es(s){let{data:t,details:e}=ct(),n=s,o=s;for(;o;){let i=K.first(o.sources,"caller");
o=i===null?null:await e.of(i),o&&t.kinds[o.kind].name==="Operator"&&(n=o)}return n}var _t=(s,t)=>({gpu:t,has:(e,n,o)=>to(
o,e.entry[n])===s});function Cs(s){let t=/ × \d+/.test(s)?nt(s.split(" / ")):null;return{has:({module:e},n,o)=>{let i=o.
modules[e[n]]??"";return t===null?i===s:nt(i.split(" / "))===t}}}function dt(s,t){let e=new Set(s);return{gpu:t,has:({id:n},o)=>e.
has(n[o])}}function As(s,t){let{tree:e,analysis:n}=t;if(!e.total_ns)return x("breakdown","Device time",null,v(null,null,et("The tra\
ce has no GPU events.")));let o=h("div"),i=s.gpu_kinds;return z(o,460,()=>({tooltip:P(r=>{let a=r.treePathInfo.slice(1).
map(c=>c.name),l=r.data.of;return l?N(B(l.name,200),[a.length>1?["in",B(a.slice(0,-1).join(" › "),140)]:null,l.kind===
void 0?null:[l.level,i[l.kind].name],["time",m(l.total_ns,"ns")],["share",m(l.total_ns/e.total_ns,"share")],["GPU events",
m(l.count,"count")]]):null}),series:[{type:"treemap",data:(e.children??[]).map(r=>Ls(r,i)),left:0,right:0,top:30,bottom:0,
leafDepth:so(e),roam:!1,nodeClick:"zoomToNode",drillDownIcon:"",animationDuration:g.paper?0:200,visibleMin:20,breadcrumb:{
top:0,left:0,height:22,itemStyle:{color:g.value("sunk"),borderColor:g.value("line"),textStyle:{color:g.value("text")}},emphasis:{
itemStyle:{color:g.value("accent-soft")}}},name:"All device time",label:{fontSize:12,padding:[3,5],lineHeight:15,overflow:"\
truncate",formatter:r=>`${B(r.name,70)}
${m(r.value,"ns")}`},upperLabel:{show:!0,height:20,color:g.value("text"),fontSize:12,padding:[0,6],formatter:r=>`${B(r.name,
80)}  ${m(r.value/e.total_ns,"share")}`},itemStyle:{gapWidth:2,borderWidth:0,borderColor:g.value("card")},levels:[{itemStyle:{
gapWidth:3},upperLabel:{show:!1}},...[1,2,3,4,5,6,7,8].map(()=>({itemStyle:{gapWidth:2,borderWidth:2,borderColor:g.value(
"sunk")}}))]}]})),x("breakdown","Device time","By module, operator and kernel. Click to zoom in; use the path above to g\
o back.",v(null,null,j(ae(Ne(e),i)),o),$("By operator and kernel",G(t,"breakdown"),"breakdown",n.breakdown,{sort:"total_\
ns",jump:eo}))}var eo=({device:s,stream:t,kernel:e,op:n,repeated:o,modules:i,shapes:r})=>({gpu:!0,device:s,stream:t,name:e,
op:o?"":n,fits:i||r?async(a,l)=>{let c=await ce(a),d=c&&await Es(c);if(!d||Os(l.signatures[d.signature])!==r)return!1;let u=K.
first(d.sources,"forward");return[d,u===null?null:await ct().details.of(u)].some(p=>p&&xt(l,p.path).join(" / ")===i)}:null});
function so(s){let t=s.children??[],e=1;for(;e<6&&t.length<24;)t=t.flatMap(n=>n.children??[n]),e+=1;return e}function Ne(s){
return s.children?s.children.flatMap(Ne):[s]}function Ls(s,t){let e=s.children?.map(r=>Ls(r,t)),n=new Map;for(let r of Ne(
s))n.set(r.kind,(n.get(r.kind)??0)+r.total_ns);let o=[...n].reduce((r,a)=>a[1]>r[1]?a:r)[0],i=o===void 0?"faint":t[o].color;
return{name:s.name,value:s.total_ns,of:s,children:e,itemStyle:{color:U(i)},label:{color:st(g.color(i))}}}function Ts(s,t){let e=t.analysis.communication;if(!e.length)return null;let n=e.filter(a=>a.bytes&&a.algorithm_bandwidth),
o=h("div"),i=[...new Set(n.map(a=>a.collective||"unnamed"))],r=Math.max(...n.map(a=>a.total_ns));return n.length&&z(o,270,
()=>({grid:{left:80,right:16,top:14,bottom:44},tooltip:P(a=>{let l=a.data.row;return N(l.collective||"unnamed",[["messag\
e",m(l.bytes,"bytes")],["dtype",l.dtype||"–"],["group",l.group||"–"],["ranks",l.group_size?String(l.group_size):"–"],
["kernels",m(l.count,"count")],["mean duration",m(l.mean_ns,"ns")],["algorithm bandwidth",m(l.algorithm_bandwidth,"bytes\
/s")],["bus bandwidth",m(l.bus_bandwidth,"bytes/s")]])}),xAxis:O({type:"log",name:"message size",nameLocation:"middle",nameGap:28,
unit:"bytes"}),yAxis:O({type:"log",unit:"bytes/s"}),series:i.map((a,l)=>({name:a,type:"scatter",symbol:lt[V(l)],itemStyle:{
color:g.color(l),opacity:.8,borderColor:g.value("card")},symbolSize:(c,d)=>8+20*Math.sqrt(d.data.row.total_ns/r),data:n.
filter(c=>(c.collective||"unnamed")===a).map(c=>({value:[c.bytes,c.bus_bandwidth??c.algorithm_bandwidth],row:c}))}))})),
x("communication","Communication","Durations of communication kernels include waits for other ranks, so bandwidths are t\
hose of the job, not of the links.",n.length?v("Bus bandwidth by message size","algorithm bandwidth where the number of \
ranks is unknown",j(i.map((a,l)=>({name:a,color:l}))),o):null,$("Collectives",G(t,"communication"),"communication",e,{sort:"\
total_ns",jump:no}))}var no=({collective:s,dtype:t,bytes:e})=>({gpu:!0,has:(n,o,i)=>{let r=i.comms[n.comm[o]];return!!r&&
(r.collective??"")===s&&(r.dtype??"").toLowerCase()===t&&oo(r)===e},orElse:{gpu:!0,has:(n,o)=>n.comm[o]>=0}});function oo({
bytes:s,in_nelems:t,out_nelems:e}){let n=t||e;return s===null||!n?s:Math.floor(s/n)*Math.max(t??0,e??0)}function je(s){let t=s.steps??[];C("step-pick").hidden=!t.length,C("step").replaceChildren(h("option",{value:""},"all"),
...t.map((e,n)=>e.data?h("option",{value:n},e.name):h("option",{value:n,disabled:!0,title:"Not on this page; make one wi\
th --steps"},e.name)))}var Ft=({step:s,span_ns:t})=>s?{min:s.from,max:s.to}:{min:0,max:t};function ot(s){let{report:t}=E,
e=t.ranks[C("rank").value].steps?.[C("step").value]?.number;C("rank").value=s,je(t.ranks[s]);let n=t.ranks[s].steps?.findIndex(
o=>o.number===e&&o.data)??-1;return C("step").value=n<0?"":n,E.draw(s,n<0?null:n)}async function Ps(s,{number:t}){let e=s.
ranks.map(async n=>{let o=n.steps?.find(i=>i.number===t&&i.data);return o?{...n,...o.unpacked??=await bt(o.data??""),step:o}:
n});return{...s,ranks:await Promise.all(e)}}var io={measured:"the trace shows the problem and its cost",likely:"the trace shows the symptom, whose usual cause this \
is",possible:"the trace shows what often goes with the problem"};function he(s,t){let{findings:e}=s;if(!e)return null;let n=e.
found.filter(({where:c})=>!t.step||!c.step||c.step===t.step.name),o=n.filter(c=>s.difference||c.gain||c.cost_ns!==null),
i=n.filter(c=>!o.includes(c)).map(c=>c.title),r=o.slice(0,e.first||o.length),a=o.slice(r.length),l=a.length?h("details",
{class:"more"},h("summary",{},`${a.length} with less to gain`),a.map((c,d)=>Ns(s,c,r.length+d))):null;return x("findings",
"Findings",ro(e,o),r.map((c,d)=>Ns(s,c,d)),l,at("notes",[...i,...e.notes]))}function ro({found:s,none_reason:t,looked_for:e,
base_error:n,makespan_ns:o,together:i},r){let a=n?`The replay behind the gains is off by ${os(n.makespan)}`:"",l=i?`the \
first ${Math.min(3,s.filter(u=>u.gain).length)} together gain ${ze(i,o)}`:"",c=r.some(u=>u.gain)?"largest gain":"greates\
t cost";return`${[t?t[0].toUpperCase()+t.slice(1):`${J(r.length,"problem")} found (${J(e.length,"check")}), the ${c} fir\
st`,l].filter(Boolean).join("; ")}. ${a?`${a}.`:""}`}function ze({ns:s,low_ns:t,high_ns:e},n){let o=n?`, ${m(s/n,"share")}\
 of ${m(n,"ns")}`:"";return`${m(s,"ns")} (${m(t,"ns")} to ${m(e,"ns")})${o}`}function Ns(s,t,e){let{id:n,title:o,evidence:i,
certainty:r,advice:a,check:l,command:c,cost_ns:d,gain:u,where:f}=t,p=s.findings?.makespan_ns??null,w=u?.replayed_ns??null,
S=h("article",{class:"card finding",id:`finding-${e+1}`,"data-finding":n,"aria-labelledby":`finding-${e+1}-title`}),y=!!s.
difference,k=y?null:F=>it=>ho(S,s,t,F,it.currentTarget),M=Ie([y?null:u?["Gain",`${ze(u,p)}${u.unexplained?`; the replay \
does not explain ${m(u.unexplained,"share")}`:""}`]:["Gain","not replayed"],d===null?null:["At stake",m(d,"ns")],["Certa\
inty",`${r}: ${io[r]??""}`]]),A=i.every(F=>F.command===i[0].command)?i[0].command:null,L=i.map(({text:F,value:it,unit:qt,
command:En})=>h("li",{},F,it===null?null:h("b",{},` ${ns(it,qt)}`),A===null?[" ",Re(En)]:null)),ft=co(t,k),T=Ie([...M,ft&&
["Where",ft]]),R=Ie([["Evidence",h("div",{},h("ul",{class:"proof"},L),A?Re(A):null)],["Try",a],["Check",l],c?["What if",
h("div",{},Re(c),w?H(` prints ${m(w,"ns")}, with what recording cost`):null)]:null]);return S.append(h("header",{},h("sp\
an",{class:"rank"},String(e+1)),h("h3",{id:`finding-${e+1}-title`},o),u?h("span",{class:"saves"},`saves ${m(u.ns,"ns")}`):
null,(k?lo(f):[]).map(([F,it],qt)=>h("button",{type:"button",class:qt?"other":"go",title:`${F}, in the timeline`,onclick:k?.(
it)},qt?F:"Show in the timeline"))),h("details",{},h("summary",{},"Evidence and what to try"),u?ao(u,p):null,h("div",{class:"\
halves"},gt(T),gt(R)))),S}var Ie=s=>s.filter(t=>t!==null&&t!=="");function ao({ns:s,low_ns:t,high_ns:e},n){let o=i=>`${Math.
max(0,Math.min(100,100*i/(n||1))).toFixed(2)}%`;return h("div",{class:"gain",role:"img","aria-label":`Gain: ${ze({ns:s,low_ns:t,
high_ns:e},n)}`,"--gain":o(s),"--low":o(t),"--high":o(e)},h("i",{}),h("s",{}))}function Re(s){let t=h("button",{type:"bu\
tton",class:"copy","aria-label":`Copy: ${s}`,title:"Copy the command"},"Copy");return t.addEventListener("click",async()=>{
t.textContent=await Vt(s)?"Copied":"Not allowed"}),h("span",{class:"command"},h("code",{},s),t)}function lo({kernel:s,operator:t,
stream:e,rows:n,start_ns:o,end_ns:i}){let r=s?{gpu:!0,name:s}:t?{gpu:!1,name:t}:void 0,a=o!==void 0&&i!==void 0?{from:o,
to:i}:null,l=[];return n?.length&&l.push(["Longest event",{...dt(n),orElse:r??a}]),a&&l.push(["Its time",a]),s||t||e!==void 0?
l:l.reverse()}function co({where:s},t){let{source:e,module:n,operator:o,kernel:i,phase:r,stream:a,step:l,rank:c,rows:d}=s,
u=[];e&&u.push(["line",e,{..._t(e),orElse:dt(d??[])}]),n&&u.push(["module",n.replaceAll(" / "," › "),Cs(n)]),o&&u.push(
["operator",o,{...dt(d??[],!1),name:o,orElse:{gpu:!1,name:o}}]),i&&u.push(["kernel",X(i),{...dt(d??[],!0),orElse:{gpu:!0,
name:i}}]);let f=[r,l,a===void 0?null:`stream ${a}`,c===void 0?null:`rank ${c}`].filter(Boolean);return!u.length&&!f.length?
null:h("span",{class:"chain"},u.map(([p,w,S])=>{let y=[H(p),h("bdi",{dir:"ltr"},w)];return t?h("button",{type:"button","\
data-part":p,title:`${p}: ${w}`,onclick:t(S)},y):h("span",{"data-part":p},y)}),f.length?h("span",{class:"said"},f.join("\
 · ")):null)}async function ho(s,t,{where:e},n,o){let i=t.ranks.findIndex(r=>r.rank===e.rank);return i>=0&&t.ranks.length>
1&&Number(C("rank").value)!==i&&(await ot(i),o=document.querySelector(`#${s.id} .go`)),kt(n,o)}var uo=.03,Wt=({a:s,b:t,...e})=>({...e,...js("a_",s),...js("b_",t)}),js=(s,t)=>Object.fromEntries(Object.entries(t??{}).
map(([e,n])=>[s+e,n])),ut=s=>s.difference;function mo(s){let t=ut(s),e=t.per_iteration?"an iteration":"whole trace",n=(o,i)=>o?
`${(i/o).toFixed(2)} × A`:"";return x("overview","Overview",t.per_iteration?`Means of an iteration: ${t.iterations_a} o\
f A, ${t.iterations_b} of B.`:"The whole traces are compared.",at("warnings",t.damage),h("div",{class:"tiles"},I(`Device\
 time, ${e}: A`,m(t.total_a,"ns"),t.a),I(`Device time, ${e}: B`,m(t.total_b,"ns"),`${t.b} · ${n(t.total_a,t.total_b)}`),
I(`Length, ${e}: A`,m(t.latency_a,"ns"),t.device_a),I(`Length, ${e}: B`,m(t.latency_b,"ns"),`${t.device_b} · ${n(t.latency_a,
t.latency_b)}`)),fo(t))}function po(s){let{lines:t}=ut(s);if(!t.length)return null;let e=t.some(n=>n.a_device_ns||n.b_device_ns);
return x("lines","Source lines","Lines that call other operators come first; a line that only moved in its file is one r\
ow.",$(null,null,e?"lines_device":"lines_host",t,{sort:""}))}function fo(s){let t=(n,o)=>n.slice(0,10).map(i=>s.ops.find(
r=>r.name===i)).filter(i=>i!==void 0).filter(i=>i.change_ns*o>0),e=(n,o,i)=>v(n,null,o.length?W(i,o,{sort:"",filter:!1}):
et("None."));return Z([6,6],e("Slower in B, the most first",t(s.losses,1),"slower"),e("Faster in B, the most first",t(s.
gains,-1),"faster"))}function go(s){let{a:t,b:e}=ut(s).iteration_list;if(!t.length||!e.length)return null;let n=h("div"),
o=["A","B"],i=[t,e],r=Math.max(t.length,e.length);return z(n,240,()=>({grid:{left:74,right:20,top:14,bottom:40},tooltip:P(
a=>N(`iteration ${a[0].dataIndex}`,a.map(l=>[l,i[o.indexOf(l.seriesName)][l.dataIndex]]).filter(([,l])=>l).map(([l,c])=>[
`${l.seriesName} (${c.name})`,m(c.latency_ns,"ns")])),{trigger:"axis"}),xAxis:O({type:"category",data:Array.from({length:r},
(a,l)=>String(l))}),yAxis:O({type:"value",min:0,unit:"ns"}),series:i.map((a,l)=>({name:o[l],type:"bar",barMaxWidth:26,itemStyle:{
color:U(l)},data:a.map(c=>c.latency_ns)}))})),x("iterations","Iterations","Each trace's iterations in order, by their le\
ngth.",v(null,null,n,j(o.map((a,l)=>({name:a,color:l})))),wo(ut(s).phases))}var wo=s=>$("Serving steps by phase","mean l\
atency of a step, new tokens per second","diff_phases",s.map(Wt),{sort:"",filter:!1});function yo(s){let t=ut(s);if(!t.paths.
length)return null;let e=t.paths.some(a=>a.a?.device_ns||a.b?.device_ns),n=e?"device_ns":"host_ns",o=e?"change_launched_\
ns":"change_self_ns",i=e?"change_device_ns":"change_host_ns",r=t.paths.filter(a=>a[o]).map(Wt);return x("paths","Call tr\
ee",`The same operator below the same callers in both traces, by ${e?"the device time that it launches":"its host time"}\
.`,v("Where it changes",e?"device time launched by the call itself":"host time of the call itself",W(e?"paths_device":"p\
aths_host",r,{sort:o})),v("The tree",t.paths_left_out?`${b.format(t.paths_left_out)} smaller paths are left out`:null,bo(
t.paths,n,i)))}function bo(s,t,e){let n=h("div",{class:"paths"}),o=[n],i=uo*Math.max(...s.map(r=>Math.abs(r[e])));return s.
forEach((r,a)=>{let l=(s[a+1]?.depth??0)<=r.depth,c=[h("code",{title:r.path},B(r.name,70)),` ${m(r.a?.[t],"ns")} → ${m(
r.b?.[t],"ns")} `,h("b",{},`${r[e]>0?"+":""}${m(r[e],"ns")}`)];o.length=r.depth+1;let d=l?h("div",{},c):h("details",{open:Math.
abs(r[e])>=i},h("summary",{},c));r.depth&&(d.style.marginLeft="18px"),(o[r.depth]??n).append(d),o[r.depth+1]=d}),n}function vo(s){
let t=ut(s),e=o=>t.left_out[o]?`${b.format(t.left_out[o])} more in --json`:null,n=t.host_ops?.length?v("Host",e("host_op\
s"),W("host_ops",t.host_ops.map(Wt),{sort:"change_ns"})):null;return x("tables","Operators and kernels","Matched by name\
; a dash where one trace has none.",n,v("Operators",e("ops"),W("ops",t.ops.map(Wt),{sort:"change_ns"})),v("Kernels",e("k\
ernels"),W("diff_kernels",t.kernels.map(Wt),{sort:"change_ns"})))}function ko(s){let{ranks:t,only_a:e,only_b:n,per_iteration:o}=ut(
s);if(!t)return null;let i=[["A",e],["B",n]].filter(([,r])=>r.length).map(([r,a])=>`${b.format(a.length)} ranks only in ${r}\
 are left out`);return x("ranks","Ranks",o?"An iteration of each rank, on average.":"The whole trace of each rank.",v(null,
i.join("; "),W("diff_ranks",t,{sort:"change_ns"})))}var Is=[mo,he,ko,po,go,yo,vo];var Rs=20,xo=2,zs=3,De=[{name:"Operator",color:0},{name:"Annotation and module",color:10},{name:"Runtime call",color:9},
{name:"Thread",color:8},{name:"Python function",color:1}];function _o({names:s,name:t,parent:e,kind:n,count:o,total:i}){
let r={name:"All threads",kind:zs,count:0,total:0,own:0,parent:null,children:[],level:0},a=[];return t.forEach((l,c)=>{let d=e[c]<
0?r:a[e[c]],u={count:o[c],total:i[c],own:i[c]},f={name:s[l],kind:n[c],...u,parent:d,children:[],level:d.level+1};a.push(
f),d.children.push(f),d.own-=f.total}),r.total=r.children.reduce((l,c)=>l+c.total,0),r.own=0,r}var Be=class{constructor(t){
this.root=_o(t),this.shown=this.current=this.root.children.length===1?this.root.children[0]:this.root,this.text="",this.
at=-1,this.width=0,this.hits=[],this.boxes=h("div",{class:"flame",role:"tree","aria-label":"Host time by call tree"}),this.
picked=h("div",{class:"picked",role:"status"}),this.said=h("span",{class:"said",role:"status"}),this.input=h("input",{type:"\
search",placeholder:"Search names…","aria-label":"Search the flame graph",oninput:()=>this.search(this.input.value),onkeydown:e=>wt(
e,this.at,this.hits.length,n=>this.go(n))}),this.node=h("div",{},h("div",{class:"tools"},this.input,this.said,h("button",
{type:"button",class:"push",onclick:()=>this.zoom(this.root)},"Whole")),this.boxes,this.picked),this.boxes.addEventListener(
"keydown",e=>this.key(e)),new ResizeObserver(()=>this.width!==this.boxes.clientWidth&&this.draw()).observe(this.boxes)}search(t){
this.text=t.toLowerCase(),this.hits=[];let e=n=>{n.name.toLowerCase().includes(this.text)&&this.hits.push(n),n.children.
forEach(e)};this.text&&this.root.children.forEach(e),this.hits.sort((n,o)=>o.total-n.total),this.at=-1,this.said.textContent=
this.text?`${b.format(this.hits.length)} places`:"",this.draw()}go(t){this.at=t,this.current=this.hits[t];let{current:e}=this;
this.zoom(e.children.length||!e.parent?e:e.parent),this.said.textContent=`${this.at+1} of ${b.format(this.hits.length)} \
places`}zoom(t){this.shown=t,this.visible(this.current)||(this.current=t),this.draw()}visible(t){for(let e=t;e;e=e.parent)
if(e===this.shown)return!0;for(let e=this.shown;e;e=e.parent)if(e===t)return!0;return!1}draw(){this.width=this.boxes.clientWidth;
let t=[],e=[];for(let i=this.shown.parent;i;i=i.parent)e.unshift(i);for(let i of e)t.push(this.box(i,0,this.width));let n=this.
shown.level,o=(i,r,a)=>{t.push(this.box(i,r,a)),n=Math.max(n,i.level);for(let l of i.children){let c=l.total/(i.total||1)*
a;c>=xo&&o(l,r,c),r+=c}};o(this.shown,0,this.width),this.boxes.style.height=`${(n+1)*Rs}px`,this.boxes.replaceChildren(...t),
this.announce(this.current)}box(t,e,n){let o=this.text&&!this.hits.includes(t),i=h("div",{class:`box${o?" faded":""}${t===
this.current?" at":""}`,role:"treeitem",tabindex:t===this.current?0:-1,"aria-level":t.level+1,"aria-label":this.describe(
t),title:this.describe(t),onclick:()=>this.pick(t,!0),onfocus:()=>this.announce(t),"--look":Zt(De[t.kind].color),"--ink":st(
g.color(De[t.kind].color))},n>24?X(t.name):"");return i.style.left=`${e}px`,i.style.width=`${Math.max(1,n-1)}px`,i.style.
top=`${t.level*Rs}px`,t.box=i,i}describe(t){let e=m(t.total/(this.root.total||1),"share"),n=t.kind===zs?"":`, ${m(t.own,
"ns")} itself, ${J(t.count,"call")}`;return`${t.name}: ${m(t.total,"ns")} (${e})${n}`}announce(t){let e=[];for(let n=t.parent;n&&
n.parent;n=n.parent)e.unshift(X(n.name));this.picked.replaceChildren(h("code",{},X(t.name)),` ${this.describe(t).slice(t.
name.length+1)}`,e.length?` · in ${e.join(" › ")}`:"")}pick(t,e){this.current=t,e?this.zoom(t):this.draw(),t.box?.focus(
{preventScroll:!0}),t.box?.scrollIntoView({block:"nearest"})}key(t){let e=this.current,n=e.parent?.children.filter(i=>i.
box?.isConnected)??[e],o={ArrowDown:()=>e.children.find(i=>i.box?.isConnected),ArrowUp:()=>e.parent,ArrowLeft:()=>n[n.indexOf(
e)-1],ArrowRight:()=>n[n.indexOf(e)+1],Home:()=>this.root}[t.key];if(t.key==="Enter"||t.key===" ")this.pick(e,!0);else if(t.
key==="Escape")this.zoom(this.root);else if(o){let i=o();i&&this.pick(i,!this.visible(i))}else return;t.preventDefault()}};
function Ds(s,t){if(!t.flame.name.length)return null;let e=new Be(t.flame),n=t.flame.left_out,o=n?h("span",{},`${b.format(
n)} smaller boxes are left out`):null;return ne(e),x("flame","Host time","The call tree of each thread; calls of one nam\
e below one caller are one box, as wide as their time. Click or press Enter to zoom in; arrow keys move.",v(null,null,j(
De.filter((i,r)=>t.flame.kind.includes(r)),{more:o}),e.node))}var Bs=24;function Q(s,{unit:t="ns",click:e=null}={}){let n=[...new Map(s.flatMap(u=>u.parts.filter(f=>f.ns>0).map(f=>[f.
name,f.color])))],o=h("div"),i=s.length>24?18:30,r=s.slice().reverse(),a=Math.max(...s.map(u=>u.whole))||1,l=s.some(u=>u.
name);z(o,Math.max(34,s.length*i)+(l?26:0),()=>({grid:{left:0,right:8,top:0,bottom:0,outerBoundsMode:"same",outerBounds:{
left:0,right:8,top:0,bottom:0}},tooltip:P(u=>{let f=r[u.dataIndex],p=f.parts.find(w=>w.name===u.seriesName);return p?N(f.
name?`${f.name}: ${p.name}`:p.name,[[t==="ns"?"time":"size",m(p.ns,t)],["share",m(p.ns/(f.whole||1),"share")]]):null}),xAxis:O(
{type:"value",max:a,show:l,splitNumber:6,splitLine:{show:l,lineStyle:{color:g.value("line")}},unit:t,axisLabel:{hideOverlap:!0}}),
yAxis:O({type:"category",data:r.map(u=>B(u.name,26)),show:l,axisLine:{show:!1}}),series:n.map(([u,f])=>({name:u,type:"ba\
r",stack:"all",barWidth:i<Bs?i-5:i-10,barMinHeight:0,itemStyle:{color:U(f),borderColor:g.value("card"),borderWidth:.5},data:r.
map(p=>p.parts.find(w=>w.name===u)?.ns??0),label:{show:i>=Bs,color:f==="line"?g.value("muted"):st(g.color(f)),fontSize:11.5,
overflow:"truncate",formatter:p=>p.value/a>.06?`${ee(p.value/(r[p.dataIndex].whole||1))} %`:""}}))}),u=>{e&&u.on("click",
f=>e(r.length-1-f.dataIndex))});let c=u=>` ${m(s[0].parts.find(f=>f.name===u)?.ns,t)}`,d=n.map(([u,f])=>({name:s.length===
1?u+c(u):u,color:f}));return h("div",{},o,j(d))}var $o="already launched";function Fs(s,t){let{streams:e,device_use:n,iteration_list:o}=t.analysis;if(!e.length)return null;
if(!n.length)return So(e);let i=n.length>1,r=[...e].sort((l,c)=>c.busy_ns-l.busy_ns).slice(0,12),a=t.gaps.map(l=>({...l,
cause:Mo(l)}));return x("idle","Idle and overlap","Busy time of each stream, what overlaps, and the longest gaps.",Z([6,
6],v("Streams",e.length>r.length?`the ${r.length} busiest of ${e.length}`:null,Q(r.map(l=>({name:Oo(l,i),whole:l.window_ns,
parts:[{name:"Busy",color:0,ns:l.busy_ns},{name:"Idle",color:"line",ns:l.idle_ns}]})))),o.length?Eo(t):null),$("Devices",
null,"device_use",n,{sort:"busy_ns",filter:!1,jump:Gt}),$("Streams in numbers",null,"streams",e,{sort:"busy_ns",jump:Gt}),
$("Longest gaps",null,"gaps",a,{sort:"idle_ns",jump:l=>({from:l.start,to:l.start+l.idle_ns})}))}function So(s){return x(
"idle","Streams","Sums of durations; no start times were recorded, so that busy and idle time are not known.",$("Streams\
 in numbers",null,"streams",s,{sort:"total_ns",jump:Gt}))}function Mo({before:s,after:t,launch_ns:e}){if(!t)return"no la\
ter event";let n=e===null?"launch not in the trace":e>0?"host launched late":$o;return s?n:`before the first event: ${n}`}
var Gt=({device:s,stream:t})=>({gpu:!0,device:s,stream:t});function Oo({device:s,stream:t},e){return e?`GPU ${s} · strea\
m ${t}`:`stream ${t}`}function Eo(s){let t=s.analysis.iteration_list,e=h("div"),n=[{name:"GPU busy",color:0,value:o=>o.gpu_ns},
{name:"GPU idle",color:"line",value:o=>o.latency_ns-o.gpu_ns}];return z(e,210,()=>({grid:{left:62,right:10,top:12,bottom:26},
tooltip:P(o=>{let i=t[o.dataIndex];return N(i.name,[["length",m(i.latency_ns,"ns")],["a device busy",m(i.gpu_ns,"ns")],[
"share",m(i.gpu_ns/(i.latency_ns||1),"share")]])}),xAxis:O({type:"category",data:t.map(o=>o.name),splitLine:{show:!1},axisLabel:{
hideOverlap:!0,formatter:o=>o.replace("ProfilerStep#","step ")}}),yAxis:O({type:"value",splitNumber:4,unit:"ns"}),series:n.
map(({name:o,color:i,value:r})=>({name:o,type:"bar",stack:"all",barMaxWidth:46,itemStyle:{color:U(i)},data:t.map(r)}))})),
v("Iterations",`mean ${m(s.analysis.iterations.mean_latency_ns,"ns")}`,e,j(n))}var Co=260,Ws=0,Gs=1;function Ao(s,t,e){let n=h("div",{"aria-label":`${t.title} of each rank`}),o=new Set(t.outliers),i=r=>s.
numbers.map((a,l)=>[a,t.values[l]]).filter(([a,l])=>l!==null&&o.has(a)===r);return z(n,Co,()=>({grid:{left:0,right:12,top:12,
bottom:0,outerBoundsMode:"same",outerBounds:{left:0,right:12,top:12,bottom:0}},tooltip:P(r=>N(`rank ${r.value[0]}`,[[t.title,
m(r.value[1],"ns")]])),xAxis:O({type:"value",min:"dataMin",max:"dataMax",minInterval:1,splitLine:{show:!1}}),yAxis:O({type:"\
value",scale:!0,splitNumber:4,unit:"ns"}),series:[{name:"Ranks",type:"scatter",symbolSize:4,itemStyle:{color:g.color(Ws)},
data:i(!1)},{name:"Stand out",type:"scatter",symbol:"diamond",symbolSize:10,itemStyle:{color:g.color(Gs)},data:i(!0)}]}),
r=>r.on("click",a=>e(a.value[0]))),h("div",{},n,j([{name:"Ranks",color:Ws},{name:"Stand out",color:Gs}]))}function Us(s){
let{many:t}=s;if(!t)return null;let e=d=>s.ranks.findIndex(u=>u.rank===d),n=h("div",{class:"picked",role:"status"}),o=h(
"div"),i=d=>{let u=e(d);if(u<0){n.replaceChildren(`rank ${d} is not in this page: `,h("code",{},`etplus report … --ranks\
 ${d}`));return}C("rank").value=u,E.draw(u)},r=h("select",{"aria-label":"Quantity",onchange:()=>a()},t.quantities.map((d,u)=>h(
"option",{value:u},d.title))),a=()=>{for(let d of q)o.contains(d.node)&&(d.instance?.dispose(),q.delete(d));o.replaceChildren(
Ao(t,t.quantities[r.value||0],i));for(let d of q)o.contains(d.node)&&o.isConnected&&d.draw()};a();let l=d=>d.length?`${d.
slice(0,12).join(", ")}${d.length>12?", …":""}`:"none",c=t.tables.map(({title:d,name:u,columns:f,rows:p,left_out:w})=>$(
d,w?`${b.format(w)} more rows are left out`:null,`job_${u}`,p,{columns:f,sort:"",click:f[0].title==="rank"?S=>i(S[0]):void 0}));
return x("many","All ranks",`Only ${s.ranks.length} of ${b.format(t.numbers.length)} ranks are shown in detail below: th\
ose that stand out, the first and the middle one. A click on one of them shows it.`,h("div",{class:"tiles"},I("Ranks",b.
format(t.numbers.length),`${s.ranks.length} in detail`),I("Stragglers",b.format(t.stragglers.length),l(t.stragglers)),I(
"Stand out",b.format(t.outliers.length),l(t.outliers))),v("Each rank",null,h("div",{class:"tools"},r),o,n),...c)}var Ks={prefill:1,decode:0,mixed:6,capture:4,idle:"line",unknown:9},Lo=30,qs=(s,{start_ns:t,latency_ns:e})=>{let n=t-s.start_ns;
return{from:n,to:n+e}};function To(s,t,e){let n=t.filter(o=>o.phase===e||e==="all");return n.length?qs(s,n.reduce((o,i)=>i.
latency_ns>o.latency_ns?i:o)):null}function Xs(s,t){let{serving_steps:e,serving_phases:n}=t.analysis;if(!e.length)return null;
let o=Object.keys(Ks).filter(r=>e.some(a=>a.phase===r)).map(r=>({name:r,color:Ks[r]})),i=e.filter(r=>r.tokens_per_second!==
null);return x("serving","Serving","Steps of the serving engine: from the start of the annotation to its end, or to that\
 of the last device event that it launched.",v("Phases over time",null,No(t,e,o)),Z([6,6],v("Latency of steps",Po(e),Hs(
t,e,o,"latency_ns","ns")),i.length?v("Tokens per second","new tokens of a step over its time",Hs(t,i,o,"tokens_per_secon\
d","tokens/s")):null),jo(t,e,o),$("Phases",null,"serving_phases",n,{sort:"",filter:!1,jump:({phase:r})=>To(t,e,r)}),$("S\
teps",G(t,"serving_steps"),"serving_steps",e,{sort:"",jump:r=>qs(t,r)}))}function Po(s){let t=s.filter(e=>e.time_ns<e.latency_ns).
length;return t?`${t} of ${s.length} begin before the device has done with the one before`:null}function Vs(s,t){let e=(n,o)=>n?
`${m(o,"count")} of ${m(n,"count")} requests`:null;return N(`step ${t.step}: ${t.phase}`,[["at",m(t.start_ns-s.start_ns,
"ns")],["latency",m(t.latency_ns,"ns")],["GPU busy",m(t.device_ns,"ns")],["prefill tokens",e(t.prefill_requests,t.prefill_tokens)],
["decode tokens",e(t.decode_requests,t.decode_tokens)],["keys",t.keys===null?null:m(t.keys,"count")],["tokens/s",t.tokens_per_second===
null?null:D(t.tokens_per_second)]])}function No(s,t,e){let n=h("div"),o=new Map(e.map((i,r)=>[i.name,r]));return z(n,52+
26*e.length,()=>({grid:{left:74,right:24,top:8,bottom:30},tooltip:P(i=>Vs(s,i.data.row)),xAxis:O({type:"value",...Ft(s),
unit:"ns",axisLabel:{hideOverlap:!0}}),yAxis:O({type:"category",data:e.map(i=>i.name),inverse:!0}),dataZoom:[{type:"insi\
de",filterMode:"none"}],series:[{type:"custom",encode:{x:[1,2],y:0},renderItem:(i,r)=>{let[a,l]=r.coord([r.value(1),r.value(
0)]),[c]=r.coord([r.value(2),r.value(0)]);return{type:"rect",shape:{x:a,y:l-8,width:Math.max(c-a,1),height:16},style:{fill:U(
e[r.value(0)].color),stroke:g.value("card"),lineWidth:.5}}},data:t.map(i=>{let r=i.start_ns-s.start_ns;return{value:[o.get(
i.phase),r,r+i.latency_ns],row:i}})}]})),n}function Hs(s,t,e,n,o){let i=h("div"),r=t.map(l=>l[n]).filter(l=>l>0),a=r.length>
1&&Math.max(...r)>Lo*Math.min(...r);return z(i,240,()=>({grid:{left:84,right:24,top:14,bottom:28},tooltip:P(l=>Vs(s,l.data.
row)),xAxis:O({type:"value",...Ft(s),unit:"ns",axisLabel:{hideOverlap:!0}}),yAxis:O({type:a?"log":"value",min:a?void 0:0,
unit:o}),dataZoom:[{type:"inside",filterMode:"none"}],series:e.map(({name:l,color:c})=>({name:l,type:"scatter",symbolSize:t.
length>200?5:9,symbol:lt[V(c)],itemStyle:{color:g.color(c),opacity:.85},data:t.filter(d=>d.phase===l&&(!a||d[n]>0)).map(
d=>({value:[d.start_ns-s.start_ns,d[n]],row:d}))}))})),h("div",{},i,j(e))}function jo(s,t,e){let n=t.filter(y=>y.flops>0&&
y.bytes>0&&y.device_ns>0),o=Object.values(s.analysis.devices).filter(y=>Object.keys(y.peaks).length&&y.memory_gb_s);if(!n.
length)return null;let i=y=>[y.flops/y.bytes,y.flops/y.device_ns*1e9],r=n.map(i),a=h("div"),l=o.length?Object.entries(o[0].
peaks):[],c=o.length?o[0].memory_gb_s*1e9:0,d=Math.max(0,...l.map(y=>y[1])),u=(y,k)=>10**k(Math.log10(y)),f=u(Math.min(...r.
map(y=>y[0])),Math.floor),p=u(Math.max(...r.map(y=>y[0]),c?3*d/c:1),Math.ceil),w=u(Math.min(...r.map(y=>y[1])),Math.floor),
S=u(Math.max(...r.map(y=>y[1]),d)*1.01,Math.ceil);return z(a,340,()=>({grid:{left:84,right:130,top:16,bottom:46},tooltip:P(
y=>y.data.row?N(`step ${y.data.row.step}: ${y.data.row.phase}`,[["FLOP per byte",D(y.data.value[0])],["achieved",m(y.data.
value[1],"flop/s")],["memory",m(y.data.row.bytes/y.data.row.device_ns*1e9,"bytes/s")],["known work",`${m(y.data.row.known_ns/
(y.data.row.events_ns||1),"share")} of GPU time`]]):null),xAxis:O({type:"log",min:f,max:p,name:"FLOP per byte",nameLocation:"\
middle",nameGap:28,axisLabel:{formatter:se}}),yAxis:O({type:"log",min:w,max:S,unit:"flop/s"}),series:[...l.map(([y,k])=>({
type:"line",symbol:"none",silent:!0,lineStyle:{color:g.value("muted"),width:1.5},data:[[Math.max(f,w/c),Math.max(f*c,w)],
[k/c,k],[p,k]].filter(M=>M[0]>=f),endLabel:{show:!0,formatter:`${y} ${rt(k,"flop/s")}`,color:g.value("muted"),fontSize:11.5}})),
...e.map(({name:y,color:k})=>({name:y,type:"scatter",z:3,symbolSize:11,symbol:lt[V(k)],itemStyle:{color:g.color(k),opacity:.8,
borderColor:g.value("card"),borderWidth:1},data:n.filter(M=>M.phase===y).map(M=>({value:i(M),row:M}))}))]})),v("Roofline\
 of steps","known FLOPs and bytes of a step over the time in which the device worked",j(e),a)}function Js(s,t){if(!t.tables)return null;let e=t.tables.map(({title:n,name:o,columns:i,rows:r})=>$(n,"",o,r,{columns:i,
sort:""}));return e.some(Boolean)?x("tables","Further tables",null,...e):null}var tt=50,de=12,$t=16,St=22,Mt=7,Fe=50;function Ys({lane:s,depth:t,ts:e}){let n=[];for(let o=0;o<e.length;o++){let i=n[n.
length-1];i&&i.lane===s[o]&&i.depth===t[o]?i.end=o+1:n.push({lane:s[o],depth:t[o],begin:o,end:o+1})}return n}function Zs(s,t){
return[{type:"inside",filterMode:"none",zoomLock:!0,startValue:s,endValue:t,minValueSpan:Fe},{type:"slider",filterMode:"\
none",top:2,height:22,left:4,right:4,startValue:s,endValue:t,brushSelect:!1,showDetail:!1,borderColor:"transparent",backgroundColor:g.
value("sunk"),fillerColor:`${g.color(0)}33`,dataBackground:{lineStyle:{opacity:0},areaStyle:{color:g.value("faint"),opacity:.6}},
selectedDataBackground:{lineStyle:{opacity:0},areaStyle:{color:g.color(0),opacity:.8}},handleStyle:{borderColor:g.color(
0),color:g.value("card")},moveHandleSize:0}]}function Qs(s){let t=0;return s.map(e=>(t+=e)-e)}function mt(s,t,e,n,o){for(;e<
n;){let i=e+n>>1;s[i]+t[i]<o?e=i+1:n=i}return e}var Io=400,Ro=600,We={fields:[],lane:[],depth:[],from:[],to:[],count:[],data:[]},Ot=class{constructor(t,e){this.tiles=t??
We,this.changed=e,this.decoded=new Map,this.pending=new Set,this.rows=new Map,this.first=[],this.size=0;for(let n=0;n<this.
tiles.lane.length;n++){let o=`${this.tiles.lane[n]} ${this.tiles.depth[n]}`,i=this.rows.get(o);i?i[1]=n+1:this.rows.set(
o,[n,n+1]),this.first.push(this.size),this.size+=this.tiles.count[n]}}*within(t,e,n,o){let[i,r]=this.rows.get(`${t} ${e}`)??
[0,0];for(let a=i;a<r&&this.tiles.from[a]<=o;a++)this.tiles.to[a]>=n&&(yield a)}of(t,e,n){if(!this.size)return null;let o=t.
map(({lane:a,depth:l})=>[...this.within(a,l,e,n)]);if(o.reduce((a,l)=>a+l.length,0)>Io)return null;let r=o.flat().filter(
a=>!this.decoded.has(a)&&!this.pending.has(a));return r.length&&this.fetch(r),o.map(a=>a.every(l=>this.decoded.has(l))?a.
map(l=>this.use(l)):null)}use(t){let e=this.decoded.get(t);return this.decoded.delete(t),this.decoded.set(t,e),e}async fetch(t){
for(let n of t)this.pending.add(n);let e=await Promise.all(t.map(n=>this.decode(n)));t.forEach((n,o)=>{this.pending.delete(
n),this.keep(n,e[o])}),this.changed()}keep(t,e){this.decoded.set(t,e);for(let n of this.decoded.keys()){if(this.decoded.
size<=Ro)break;this.decoded.delete(n)}}async decode(t){let e=this.tiles.count[t],n=await Rt(this.tiles.data[t],this.tiles.
fields,e),o=this.tiles.lane[t],i=this.tiles.depth[t];return Object.assign(n,{lane:o,depth:i,first:this.first[t],count:e})}tileOf(t){
let e=0,n=this.first.length;for(;n-e>1;){let o=e+n>>1;this.first[o]<=t?e=o:n=o}return e}placeOf(t){let e=this.tileOf(t);
return{lane:this.tiles.lane[e],depth:this.tiles.depth[e]}}async event(t){let e=this.tileOf(t);this.decoded.has(e)||this.
keep(e,await this.decode(e));let n=this.use(e),o={number:t,...this.placeOf(t)};for(let{name:i}of this.tiles.fields)o[i]=
n[i][t-n.first];return o}};var me=10,Ge={"host work":0,"GPU work":4,collective:2},zo=1,Do=24,Bo={kinds:[],work:[],main:[],makespan_ns:0,shown_ns:0,
tiles:We},ue=class{constructor(t,e){this.path=t??Bo,this.timeline=e,this.shown=!0,this.walking=!1,this.at=null,this.tiles=
new Ot(this.path.tiles,()=>e.redraw()),this.node=h("div",{class:"picked",id:"path-said","aria-live":"polite"}),t&&this.say(
null)}get size(){return this.tiles.size}isWork(t){return this.path.work.includes(t)}color(t){return Ge[this.path.kinds[t]]??
zo}*within(t,e){let n=[...this.tiles.within(0,0,t,e)];if(n.length>Do){for(let i of n){let r=this.path.tiles.from[i];yield{
number:-1,ts:r,dur:this.path.tiles.to[i]-r,kind:this.path.main[i],event:-1}}return}let o=this.tiles.of([{lane:0,depth:0}],
t,e)?.[0]??[];for(let i of o)for(let r=mt(i.ts,i.dur,0,i.count,t);r<i.count&&i.ts[r]<=e;r++)yield{number:i.first+r,ts:i.
ts[r],dur:i.dur[r],kind:i.kind[r],event:i.event[r]}}async walk(t){let{from:e,inspector:n}=this.timeline;if(!this.size||!n||
this.walking)return;this.walking=!0;let o=n.event?n.event.ts:e,i=Math.max(0,Math.min(this.size-1,this.at===null?await this.
atTime(o):this.at+t)),r=await this.tiles.event(i);this.shown=!0,this.walking=!1,this.say(r),r.event>=0&&await n.select(r.
event),this.at=i,this.walking=!1;let a=r.event>=0?this.timeline.tiles.placeOf(r.event):{lane:0,depth:0};n.reveal({...r,...a}),
this.timeline.redraw(),this.node.dataset.element=i}async atTime(t){let{to:e,from:n}=this.path.tiles,o=Math.min(e.findIndex(
c=>c>=t)>>>0,n.length-1),{ts:i,dur:r,count:a,first:l}=await this.tiles.decode(o);return l+mt(i,r,0,a,t)}toggle(){this.shown=
!this.shown,this.timeline.redraw()}say(t){let{makespan_ns:e,shown_ns:n,kinds:o}=this.path,i=m(e,"ns"),r=b.format(this.size),
a=n===e?"":`, of which ${m(n,"ns")} are on this page`;this.node.textContent=t?`Critical path, element ${b.format(t.number+
1)} of ${r}: ${o[t.kind]}, ${m(t.ns,"ns")} of ${i}`:`Critical path: ${r} elements, ${i} by the replay${a}; n and p walk \
along it, c hides it`,this.node.dataset.ns=String(t?.ns??"")}};var tn=12,en=80,Fo=90,pe=class{constructor(t,e){this.timeline=t,this.devices=e,this.details=new K(t.data.details,t.tiles,
t.data.lanes),this.event=null,this.arrows=[],this.asked=0;let n="Details of the selected event";this.node=h("div",{class:"\
details",role:"region",hidden:!0,tabindex:-1,"aria-label":n}),this.node.addEventListener("keydown",o=>{o.key==="Escape"&&
(this.timeline.canvas.focus(),o.preventDefault())})}async select(t,{reveal:e=!1,focus:n=!1}={}){let o=++this.asked;this.
timeline.critical.at=null;let[i,r]=await Promise.all([this.details.of(t),this.details.texts()]),a=K.first(i.sources,"ope\
rator"),l=a===null?null:await this.details.of(a);l&&(l.full=r.names[l.name]);let c=(await this.callersOf(l??i)).map(p=>r.
names[p.name]),d=await this.arrowsOf(i);if(o!==this.asked)return;this.event=i,this.arrows=d,this.panel(i,r,l,c),this.timeline.
picked.dataset.event=t,e&&this.reveal(i),this.timeline.redraw();let{kinds:u,lanes:f}=this.timeline.data;this.timeline.sayOf(
{...i,kind:u[i.kind],lane:f[i.lane]}),n&&this.node.focus(),this.node.dataset.arrows=JSON.stringify(d.map(p=>[p.kind,p.from.
number,p.to.number])),this.node.dataset.event=t}async callersOf(t){let e=[];for(let n=K.first(t.sources,"caller");n!==null;){
let o=await this.details.of(n);e.unshift(o),n=K.first(o.sources,"caller")}return e}clear(){this.asked++,this.event=null,
this.arrows=[],this.node.hidden=!0,delete this.node.dataset.event,this.timeline.redraw()}async arrowsOf(t){let e=[],n=(l,c,d)=>c>=
0&&d>=0&&e.length<en&&e.push([l,c,d]);for(let{kind:l,other:c}of t.sources)n(l,c,t.number);for(let{kind:l,other:c}of t.targets)
l!=="caller"&&n(l,t.number,c);let o=t.gpu?K.first(t.sources,"launch"):null;if(o!==null){let{sources:l}=await this.details.
of(o);for(let{kind:c,other:d}of l)c==="caller"&&n(c,d,o)}let i=t.targets.filter(({kind:l,other:c})=>l==="caller"&&c>=0);
for(let{other:l}of i.slice(0,en))for(let c of(await this.details.of(l)).targets)c.kind==="launch"&&(n("caller",t.number,
l),n("launch",l,c.other));let r=e.some(([l])=>l==="launch"),a=e.filter(([l])=>!(l==="operator"&&r));return Promise.all(a.
map(async([l,c,d])=>({kind:l,from:await this.timeline.tiles.event(c),to:await this.timeline.tiles.event(d)})))}panel(t,e,n,o){
let{lanes:i,kinds:r}=this.timeline.data,a=i[t.lane],l=`#event-${t.number}`,c=[_("ts","Start",t.ts,Pt(t.ts)),Bt("dur",t.gpu?
"Duration":"Total time",t.dur),...t.gpu?Ss(t,e,a,n,this.devices):$s(t,e),...o.length?[_("callers","Call stack",o,o.join(
" › "))]:[]],d=(u,f,p)=>h("button",{type:"button",title:f,onclick:p},u);this.node.hidden=!1,this.node.replaceChildren(
h("header",{},h("div",{},Nt(r[t.kind].color),h("b",{},r[t.kind].name),h("span",{},a.name)),h("h3",{},h("code",{"data-key":"\
name"},e.names[t.name])),h("div",{class:"tools"},d("Fill the view","z",()=>this.timeline.fill(t)),d("What runs meanwhile",
"m",()=>this.timeline.span?.set(t.ts,t.ts+t.dur)),d("Close","Esc",()=>this.clear()),Ce(t.gpu?"kernel":"call",e.names[t.name],
"In the table"),E.cameFrom?d("Back","Backspace: to the row or finding that led here",le):null,h("a",{href:l,title:"An ad\
dress that opens the page with this event"},l))),h("dl",{},c.map(({key:u,label:f,value:p,text:w})=>h("div",{class:w.length>
Fo?"long":null},h("dt",{},f),h("dd",{"data-key":u,"data-value":JSON.stringify(p),title:`${f}: ${p}`},Ce(u,p)??w)))),...this.
relations(t.sources,0),...this.relations(t.targets,1))}relations(t,e){return Object.keys(Pe).map(n=>{let o=t.filter(i=>i.
kind===n).map(i=>i.other);return o.length?this.relation(n,e,o):null}).filter(Boolean)}relation(t,e,n){let o=n.filter(c=>c>=
0),i=h("ul"),r=n.length-o.length,a=h("button",{type:"button"},`Show all ${b.format(o.length)}`),l=async c=>{let{names:d}=this.
timeline.data,u=await Promise.all(o.slice(0,c).map(f=>this.timeline.tiles.event(f)));i.replaceChildren(...u.map(f=>h("li",
{},h("button",{type:"button","data-event":f.number,onclick:()=>this.select(f.number,{reveal:!0})},h("code",{},B(d[f.name],
80)),h("span",{},`${m(f.dur,"ns")} at ${m(f.ts,"ns")}`)))))};return a.addEventListener("click",()=>{a.remove(),l(o.length)}),
l(tn),h("div",{class:"relation","data-relation":`${t} ${e?"out":"in"}`},h("h4",{},Pe[t][e],h("small",{},t)),i,o.length>tn?
a:null,r?h("p",{class:"none"},`${b.format(r)} not on this page`):null)}reveal(t){let{timeline:e}=this,{ts:n,dur:o,lane:i,
depth:r}=t,a=e.to-e.from,l=a/(e.canvas.clientWidth||1e3);r>=(e.folded.get(i)??1/0)&&(e.folded.delete(i),e.refold()),o<4*
l||o>a?e.show(n-Math.max(200,4*o),n+Math.max(200,5*o)):(n<e.from||n+o>e.to)&&e.show(n+o/2-a/2,n+o/2+a/2);let c=e.canvas.
getBoundingClientRect().top+e.rowAt(t).y;(c<70||c>innerHeight-40)&&scrollBy({top:c-innerHeight/3,behavior:"instant"})}firstInView(){
let{timeline:t}=this;for(let[e,,,n,,,o]of t.visible()){let{event:i}=t.at([0,0,0,n,0,0,o]);if(i!==null&&e>=t.from)return i}
return null}follow(...t){if(!this.event)return;let{sources:e,targets:n}=this.event;for(let[o,i]of t){let r=K.first(i?n:e,
o);if(r!==null)return this.select(r,{reveal:!0})}}beside(t){let{tiles:e}=this.timeline,n=this.event?this.event.number+t:
this.firstInView();if(n===null||n<0||n>=e.size)return;if(!this.event)return this.select(n,{reveal:!0});let{lane:o,depth:i}=e.
placeOf(n);o===this.event.lane&&i===this.event.depth&&this.select(n,{reveal:!0})}act(t){return{ArrowLeft:()=>this.beside(
-1),ArrowRight:()=>this.beside(1),ArrowUp:()=>this.follow(["launch",0],["operator",0],["caller",0]),ArrowDown:()=>this.follow(
["launch",1],["caller",1],["operator",1]),o:()=>this.follow(["operator",0],["caller",0]),l:()=>this.follow(["launch",0],
["caller",1]),k:()=>this.follow(["operator",1],["launch",1]),b:()=>this.follow(["forward",1],["forward",0]),g:()=>this.follow(
["data",0],["event",0],["sync",0],["comm",0],["thread_handoff",0],["graph",0]),h:()=>this.follow(["data",1],["event",1],
["sync",1],["comm",1],["thread_handoff",1],["graph",1]),z:()=>this.event&&this.timeline.fill(this.event),m:()=>this.event&&
this.timeline.span?.set(this.event.ts,this.event.ts+this.event.dur),Enter:()=>this.event?this.node.focus():this.beside(0),
Escape:()=>this.clear()}[t]}};function Ue(){let s=Number(/^#event-(\d+)$/.exec(location.hash)?.[1]??NaN),{timeline:t}=E;
t?.inspector&&s<t.tiles.size&&t.inspector.select(s,{reveal:!0})}var Wo=[["w s a d","zoom in and out, move left and right"],["← →","event before or after the selected one in its row\
; without one, the first in view"],["↑","to the launch call, the operator, the caller"],["↓","to what is called or l\
aunched"],["o","kernel → its operator"],["l","kernel → its launch call"],["k","operator or launch call → its first k\
ernel"],["b","forward ↔ backward operator"],["g h","what it waits for or reads from; what waits for it or reads it"],[
"n p","next and previous element of the critical path"],["c","show or hide the critical path"],[". ,","next and previous\
 event of the search, or of the row that led here"],["/ Backspace","to the search; back to the row or finding that led h\
ere"],["z","fill the view with the selected event"],["m","what runs during the selected event"],["[ ]","start and end of\
 a span at the selected event's start and end"],["Shift + drag","select a span: a table of what runs in it"],["Enter","t\
o the details; Esc back, and again to close them"],["?","this list"]];function sn(){return h("dialog",{class:"keys","ari\
a-label":"Keys of the timeline"},h("h3",{},"Keys of the timeline"),h("dl",{},Wo.map(([t,e])=>h("div",{},h("dt",{},h("kbd",
{},t)),h("dd",{},e)))),h("form",{method:"dialog"},h("button",{},"Close")))}var fe=6,Go={caller:9,operator:4,launch:4,forward:5,data:3,comm:2,sync:1,event:1},Uo=1.5;function on(s){return{id:"overl\
ay",type:"custom",clip:!0,silent:!0,z:5,progressive:0,encode:{x:[0,1],y:-1},tooltip:{show:!1},renderItem:(t,e)=>s.overlays[t.
dataIndex]?.draw(e)??null,data:Ke(s)}}function Ke(s){return s.overlays=[...Ho(s),...Jo(s),...qo(s),...Ko(s)],s.overlays.
map(({from:t,to:e})=>[t,e])}var pt=(s,t)=>s.coord([t,0])[0];function ge(s,t,e,n,o,i=0){return{from:s,to:t,draw:a=>{let l=pt(
a,s)-i,c=Math.max(1+2*i,pt(a,t)-l+i);return{type:"rect",shape:{x:l,y:e-i,width:c,height:n+2*i,r:2*i},style:o}}}}function*Ko(s){
let t=s.inspector?.event;if(!t)return;let{y:e,tall:n}=s.rowAt(t),o={fill:"transparent",stroke:g.value("text"),lineWidth:2};
yield ge(t.ts,t.ts+t.dur,e,n,o,1)}function*Ho(s){let t=s.span?.selected,e=g.value("accent");t&&(yield ge(t.from,t.to,tt,
s.height,{fill:e,opacity:.14,stroke:e,lineWidth:1}))}function*qo(s){for(let{kind:t,from:e,to:n}of s.inspector?.arrows??[]){
let o=s.rowAt(e),i=s.rowAt(n),r=t==="caller"||t==="operator",a=r?n.ts:e.ts+e.dur,l=Go[t]??9;yield{from:Math.min(a,n.ts),
to:Math.max(a,n.ts),draw:c=>{let d=o.y+o.tall/2;return r?Xo(pt(c,n.ts),d,o.y<i.y?i.y:i.y+i.tall,g.color(l)):Vo(pt(c,a),d,
pt(c,n.ts),i.y+i.tall/2,g.color(l))}}}}function Xo(s,t,e,n){let o=e>t?-fe:fe,i=fe/2+1,r={type:"line",shape:{x1:s+2,y1:t,
x2:s+2,y2:e+o},style:{stroke:n,lineWidth:1.6}};return rn(r,[[s+2,e+2],[s+2-i,e+o],[s+2+i,e+o]],n)}function Vo(s,t,e,n,o){
let i=Math.max(18,Math.min(90,Math.abs(e-s)/3)),r=fe,a={type:"bezierCurve",shape:{x1:s,y1:t,x2:e-r,y2:n,cpx1:s+i,cpy1:t,
cpx2:e-r-i,cpy2:n},style:{fill:"none",stroke:o,lineWidth:1.6,opacity:.9}},l=e-r-1,c=r/2+1;return rn(a,[[e,n],[l,n-c],[l,
n+c]],o)}function rn(s,t,e){return{type:"group",children:[s,{type:"polygon",shape:{points:t},style:{fill:e}}]}}function*Jo(s){
let{critical:t,from:e,to:n}=s;if(!t?.size||!t.shown)return;let o=(n-e)/Math.max(200,s.canvas.clientWidth||1e3),i=null,r=null;
for(let a of t.within(e,n)){let l=a.ts+a.dur,c=t.color(a.kind);if(i&&(i.color===c||l-i.from<o)?i.to=Math.max(i.to,l):(i&&
(yield nn(i)),i={from:a.ts,to:l,color:c}),!t.isWork(a.kind))continue;if(a.event<0||a.dur<Uo*o){r=null;continue}let d={...a,
...s.rowAt(s.tiles.placeOf(a.event)),color:c};yield Yo(d,a.number===t.at),r&&(yield Zo(r,d)),r=d}i&&(yield nn(i))}function nn({
from:s,to:t,color:e}){return ge(s,t,tt+1,me-4,{fill:U(e)})}function Yo({ts:s,dur:t,y:e,tall:n},o){let i=o?5:3;return ge(
s,s+t,e+n-i,i,{fill:g.value("path")})}function Zo(s,t){let e=s.ts+s.dur;return{from:Math.min(e,t.ts),to:Math.max(e,t.ts),
draw:o=>({type:"line",shape:{x1:pt(o,e),y1:s.y+s.tall-1,x2:pt(o,t.ts),y2:t.y+t.tall-1},style:{stroke:g.value("path"),lineWidth:1.5,
lineDash:[3,2]}})}}var an=60,we=class{constructor(t){this.timeline=t,this.input=h("input",{type:"search",id:"search",placeholder:"Search ca\
lls and kernels…","aria-label":"Search the timeline",title:"Enter, Shift + Enter: next, previous call; ↓ ↑: next, prev\
ious name"}),this.said=h("span",{class:"said",id:"search-said",role:"status"}),this.list=h("div",{class:"found",hidden:!0}),
this.node=h("div",{class:"searching"},this.input,this.list),this.rows=[],this.at=-1,this.input.addEventListener("input",
()=>this.find(this.input.value)),this.input.addEventListener("keydown",e=>this.key(e)),document.addEventListener("click",
e=>{this.node.contains(e.target)||(this.list.hidden=!0)})}key(t){t.key==="Escape"?(this.input.value="",this.find("")):t.
key==="Enter"?(t.preventDefault(),this.step(t.shiftKey?-1:1)):t.key!=="Home"&&t.key!=="End"&&wt(t,this.at,this.rows.length,
e=>this.choose(e))}find(t){let{timeline:e}=this,{names:n,found:o,places:i,kinds:r}=e.data,a=t.trim().toLowerCase(),l=new Set(
a?n.flatMap((u,f)=>re(u,a)?[f]:[]):[]);e.matches=a?l:null,e.hits=null;let c=a?o.filter(u=>l.has(u.name)):[],d=a?i.filter(
u=>u.text.toLowerCase().includes(a)):[];this.rows=[...c.slice(0,an),...d.slice(0,an)],this.at=-1,this.list.hidden=!this.
rows.length,this.list.replaceChildren(...this.rows.map((u,f)=>h("button",{type:"button",tabindex:-1,"data-place":u.text,
onclick:()=>this.choose(f,!0)},u.text?H(u.what):Nt(r[u.kind].color),h("code",{},B(u.text??n[u.name],120)),h("span",{},`${b.
format(u.count)} ×`),h("span",{},m(u.total,"ns"))))),this.said.textContent=a?c.length?`${J(c.reduce((u,f)=>u+f.count,0),
"call")} of ${J(c.length,"name")}`:d.length?`${b.format(d.length)} lines and modules`:"nothing found":"",e.redraw()}choose(t,e=!1){
let{timeline:n}=this,o=this.rows[t];this.at=t,[...this.list.children].forEach((r,a)=>r.classList.toggle("at",a===t)),this.
list.children[t].scrollIntoView({block:"nearest"}),this.list.hidden=e,n.hits=null;let i=Math.max(o.dur*3,200);n.show(o.ts-
i,o.ts+o.dur+i),!o.text&&(n.matches=new Set([o.name]),n.say(o.name,[n.data.kinds[o.kind].name,`${J(o.count,"call")}, ${m(
o.total,"ns")}`,`the longest ${m(o.dur,"ns")} at ${m(o.ts,"ns")}`]),n.redraw())}async step(t){let{timeline:e,rows:n}=this;
if(n.length){if(!e.matches?.size||n[this.at]?.text||!e.inspector)return this.choose((Math.max(this.at,t<0?0:-1)+t+n.length)%
n.length);this.list.hidden=!0,e.hits??=new vt(e,(await zt(e,{codes:e.matches})).map(o=>o.number)),await e.hits.step(t),this.
said.textContent=e.hits.text}}};var ye=class{constructor(t){this.timeline=t,this.selected=null,this.asked=0;let e="What runs in the selected span";this.
node=h("div",{class:"in-span",role:"region",hidden:!0,"aria-label":e});let n=t.canvas;for(let o of["pointerdown","moused\
own"])n.addEventListener(o,i=>this.press(i,o),!0)}press(t,e){if(!t.shiftKey||t.button!==0)return;if(t.stopPropagation(),
e!=="pointerdown")return t.preventDefault();let n=this.timeline.timeAt(t.clientX);Xt(o=>this.preview(n,this.timeline.timeAt(
o.clientX)),o=>this.set(n,this.timeline.timeAt(o.clientX)))}preview(t,e){let{span:n}=this.timeline.data;return this.selected=
{from:Math.round(Math.max(0,Math.min(t,e))),to:Math.round(Math.min(n,Math.max(t,e)))},this.timeline.redraw(),this.selected}clear(){
this.asked++,this.selected=null,this.node.hidden=!0,this.timeline.redraw()}setEnd(t,e){let{from:n,to:o}=this.timeline,{selected:i}=this;
t==="from"?this.set(e,i&&i.to>e?i.to:o):this.set(i&&i.from<e?i.from:n,e)}async set(t,e){let{from:n,to:o}=this.preview(t,
e);if(o<=n)return this.clear();let i=++this.asked,r=await this.totals(n,o,()=>i===this.asked);r&&this.show(n,o,r)}async totals(t,e,n){
let{tiles:o,rows:i}=this.timeline,r=new Map,a=new Map,l=this.timeline.data.lanes,c=(d,u,f,p)=>{let w=d.get(u);w?(w.count+=
1,w.total+=p):d.set(u,{...f,count:1,total:p})};for(let{lane:d,depth:u}of i)for(let f of o.within(d,u,t,e)){let{ts:p,dur:w,
name:S,kind:y,op:k,count:M}=o.decoded.get(f)??await o.decode(f);if(!n())return null;for(let A=mt(p,w,0,M,t);A<M&&p[A]<e;A++){
let L=Math.min(e,p[A]+w[A])-Math.max(t,p[A]);L<0||L===0&&w[A]>0||(c(r,y[A]*2**32+S[A],{name:S[A],kind:y[A],gpu:l[d].gpu},
L),l[d].gpu&&c(a,k[A],{name:k[A]},L))}}return{byName:[...r.values()],byOp:[...a.values()]}}show(t,e,{byName:n,byOp:o}){let{
names:i,kinds:r}=this.timeline.data,a=e-t,l=d=>d.map(({name:u,kind:f,count:p,total:w})=>({name:u>=0?i[u]:"unknown",kind:f===
void 0?null:r[f].name,count:p,total:w,share:w/a})),c=(d,u,f)=>f.length?[h("h4",{},d),W(`span-${u}`,l(f),{sort:"total"})]:
[];this.node.hidden=!1,this.node.replaceChildren(h("header",{},h("h3",{},`${m(a,"ns")} selected`),h("span",{class:"said"},
`${Pt(t)} to ${Pt(e)}`),h("button",{type:"button",onclick:()=>this.clear()},"Clear")),...c("Device work by operator","op",
o),...c("Device work by name","gpu",n.filter(d=>d.gpu)),...c("Host calls","cpu",n.filter(d=>!d.gpu))),this.node.dataset.
span=`${t} ${e}`}};var be=1.5,Qo=6;function cn(s){let t=(s.to-s.from)/Math.max(200,s.canvas.clientWidth||1e3),e=s.rows.filter(({lane:a,depth:l})=>l<
(s.folded.get(a)??1/0)),n=be*t<s.data.resolution,o=n?s.tiles.of(e,s.from,s.to):null,i=[];s.sources=[s.data];let r=!n||!!o?.
every(a=>a!==null);return e.forEach(({lane:a,depth:l,begin:c,end:d},u)=>{let f=s.data.lanes[a].gpu?St:$t,p=s.tops[a]+l*f+
Mt/2;if(!o?.[u])return ln(s,i,0,c,d,t,p,f-1);for(let w of o[u])s.sources.push(w),ln(s,i,s.sources.length-1,0,w.count,t,p,
f-1)}),s.node.dataset.complete=r?"yes":"no",i}function ln(s,t,e,n,o,i,r,a){let l=s.sources[e],{ts:c,dur:d,name:u}=l,f=e?
d:l.busy,p=be*i;for(let w=mt(c,d,n,o,s.from);w<o&&c[w]<=s.to;w++){let S=c[w],y=s.matches?.has(u[w]),k=S+d[w],M=w,A=f[w];
for(;d[w]<p&&w+1<o&&d[w+1]<p&&c[w+1]-k<p&&c[w+1]+d[w+1]-S<Qo*i&&s.matches?.has(u[w+1])===y;)w++,k=c[w]+d[w],A+=f[w],d[w]>
d[M]&&(M=w);t.push([S,k,r,M,a,Math.min(1,A/Math.max(1,k-S)),e])}}var ve=3,hn=24,ti=860,ei=34,ke=class{constructor(t,e={}){this.data=t,this.rows=Ys(t),this.names=new Set(t.names),this.tiles=
new Ot(t.tiles,()=>this.redraw()),this.numbers=Qs(t.count),this.sources=[t],this.from=0,this.to=t.span,this.matches=null,
this.hits=null,this.step=null,this.inspector=null,this.span=null,this.overlays=[],this.pending=0,this.tops=[],this.height=
0,this.folded=new Map;let n=t.lanes.reduce((i,r)=>i+r.rows*(r.gpu?St:$t)+Mt,0),o=t.lanes.findIndex(i=>!i.gpu);n>ti&&t.lanes.
forEach((i,r)=>{!i.gpu&&i.rows>(r===o?hn:ve)&&this.folded.set(r,r===o?hn:ve)}),this.chart={instance:null,draw(){}},this.
build(),this.critical=new ue(t.path,this),t.tiles&&(this.inspector=new pe(this,e),this.span=new ye(this),this.node.append(
this.inspector.node,this.span.node)),this.critical.size&&this.node.append(this.critical.node),this.place()}build(){this.
lanes=h("div",{class:"lanes"}),this.canvas=h("div",{tabindex:0,role:"application","aria-label":"Timeline; press ? for it\
s keys"}),this.help=sn(),this.picked=h("div",{class:"picked"},"Click a call for its details."),this.search=new we(this);
let t=(n,o,i,r)=>h("button",{type:"button",id:n,title:i,onclick:r},o),e=h("div",{class:"tools"},this.search.node,this.search.
said,h("span",{class:"said push"},"drag to move · Ctrl + wheel to zoom · Shift + drag to select a span"),t("keys","?",
"Keys (?)",()=>this.help.showModal()),t("zoom-in","+","Zoom in (w)",()=>this.zoom(.4)),t("zoom-out","−","Zoom out (s)",
()=>this.zoom(2.5)),t("zoom-all","Fit","All of it: the whole trace, or the step chosen",()=>this.fit()));this.node=h("di\
v",{},e,...["GPU","CPU"].map(n=>j(this.data.kinds.filter(o=>o.gpu===(n==="GPU")),{side:n})),h("div",{class:"timeline"},this.
lanes,h("div",{class:"frame"},this.canvas)),this.picked,this.help),this.canvas.addEventListener("keydown",n=>this.key(n)),
this.canvas.addEventListener("wheel",n=>this.wheel(n),{passive:!1})}place(){let t=this.critical.size?me:0,e=t;this.tops=
this.data.lanes.map((n,o)=>{let i=e,r=this.folded.get(o)??n.rows;return e+=r*(n.gpu?St:$t)+Mt,i}),this.height=e,this.lanes.
replaceChildren(...this.data.lanes.map((n,o)=>{let i=o+1<this.tops.length?this.tops[o+1]:e,r=h("div",{class:"lane",title:`${n.
name}
${n.note}`},h("b",{},n.name),i-this.tops[o]>34?h("i",{},n.note):null);return r.style.height=`${i-this.tops[o]}px`,!n.gpu&&
n.rows>ve&&(r.style.cursor="pointer",r.addEventListener("click",()=>{this.folded.delete(o)||this.folded.set(o,ve),this.refold()})),
r})),this.lanes.style.paddingTop=`${tt+t}px`}refold(){this.place(),this.canvas.style.height=`${tt+this.height+de}px`,this.
chart.draw()}get details(){if(!this.inspector)throw new Error("the page has no details");return this.inspector.details}mount(){
this.chart=z(this.canvas,tt+this.height+de,()=>this.options(),t=>this.wire(t))}options(){return this.font=g.value("sans"),
{grid:{left:0,right:0,top:tt,bottom:de,outerBoundsMode:"none"},tooltip:P(t=>t.seriesId==="calls"?this.tip(this.at(t.data)):
null,{trigger:"item"}),xAxis:O({type:"value",min:0,max:this.data.span,position:"top",splitNumber:7,axisLine:{show:!1},axisLabel:{
formatter:t=>this.tick(t),hideOverlap:!0,showMinLabel:!1,showMaxLabel:!1}}),yAxis:[{type:"value",min:0,max:this.height||
1,inverse:!0,show:!1},{type:"value",min:0,max:1,show:!1}],dataZoom:Zs(this.from,this.to),series:[{id:"load",type:"line",
yAxisIndex:1,data:this.data.load,symbol:"none",lineStyle:{opacity:0},silent:!0,tooltip:{show:!1}},{id:"calls",type:"cust\
om",clip:!0,encode:{x:[0,1],y:-1},progressive:0,renderItem:(t,e)=>this.draw(e),data:this.visible()},on(this)]}}wire(t){t.
on("datazoom",()=>{[this.from,this.to]=t.getModel().getComponent("xAxis").axis.scale.getExtent(),this.node.dataset.view=
`${this.from} ${this.to}`,cancelAnimationFrame(this.pending),this.pending=requestAnimationFrame(()=>this.redraw())}),t.on(
"click",e=>{e.seriesId==="calls"&&this.pick(this.at(e.data))}),t.on("dblclick",e=>{e.seriesId==="calls"&&this.fill(this.
at(e.data))})}redraw(){this.chart.instance?.setOption({series:[{id:"calls",data:this.visible()},{id:"overlay",data:Ke(this)}]})}rowAt({
lane:t,depth:e}){let n=this.data.lanes[t].gpu?St:$t,o=Math.min(e,(this.folded.get(t)??1/0)-1);return{y:tt+this.tops[t]+o*
n+Mt/2,tall:n-1}}timeAt(t){let e=this.canvas.getBoundingClientRect().left;return this.from+(this.to-this.from)*(t-e)/this.
canvas.clientWidth}at([,,,t,,,e]){let n=this.sources[e],o=e===0;return{name:n.name[t],kind:this.data.kinds[n.kind[t]],ts:n.
ts[t],dur:n.dur[t],op:n.op[t],lane:this.data.lanes[o?n.lane[t]:n.lane],count:o?n.count[t]:1,event:this.data.tiles&&(!o||
n.count[t]===1)?o?this.numbers[t]:n.first+t:null,busy:o?n.busy[t]:n.dur[t]}}visible(){return cn(this)}draw(t){let e=t.coord(
[t.value(0),0]),n=t.coord([t.value(1),0]),o=t.value(3),i=t.value(4),r=tt+t.value(2),a=t.value(6),l=this.sources[a];if(!l||
!(o<l.name.length))return null;let c=Math.max(0,e[0]),d=Math.min(t.getWidth(),n[0]),u=Math.max(be*.8,d-c-(d-c>4?1:0)),{names:f,
kinds:p}=this.data,w=a?1:l.count[o],S=this.matches&&!this.matches.has(l.name[o]),{color:y}=p[l.kind[o]],k=u<ei||S?"":w>1?
J(w,"call"):X(f[l.name[o]]);return{type:"rect",shape:{x:c,y:r,width:u,height:i},style:{fill:U(y),opacity:S?.13:.3+.7*t.value(
5)},textConfig:{position:"insideLeft",distance:4},textContent:{type:"text",style:{text:k,fill:st(g.color(y)),fontSize:i>
18?12:11,fontFamily:this.font,width:Math.max(1,u-8),overflow:"truncate",ellipsis:""}}}}tip({name:t,kind:e,ts:n,dur:o,count:i,
busy:r,op:a,lane:l}){let{names:c}=this.data,d=i>1;return N(B(c[t],180),[d?["merged calls, named after the longest",b.format(
i)]:null,["kind",e.name],["on",l.name],a>=0?["launched by",B(c[a],60)]:null,["start",m(n,"ns")],[d?"from first to last":
"duration",m(o,"ns")],d?["busy",m(r,"ns")]:null])}pick(t){this.sayOf(t),t.event===null?this.inspector?.clear():this.inspector?.
select(t.event)}sayOf({name:t,kind:e,ts:n,dur:o,count:i=1,op:r,lane:a}){Object.assign(this.picked.dataset,{ts:n,dur:o,count:i}),
this.say(t,[e.name,a.name,`start ${m(n,"ns")}`,`duration ${m(o,"ns")}`,i>1?`${b.format(i)} merged calls; zoom in to see \
each`:null,r>=0?`launched by ${this.data.names[r]}`:null])}say(t,e){this.picked.replaceChildren(h("code",{},this.data.names[t]),
" — ",e.filter(Boolean).join(" · "))}fill({ts:t,dur:e}){let n=Math.max(20,e*.06);this.show(t-n,t+e+n)}show(t,e){let n=this.
data.span,o=Math.min(n,Math.max(e-t,Fe)),i=Math.max(0,Math.min(t,n-o));this.chart.instance.dispatchAction({type:"dataZoo\
m",startValue:i,endValue:Math.min(n,i+o)})}showStep(t){this.step=t,this.from=t.from,this.to=t.to,this.node.dataset.view=
`${this.from} ${this.to}`}fit(){let{from:t,to:e}=this.step??{from:0,to:this.data.span};this.show(t,e)}zoom(t,e=(this.from+
this.to)/2){this.show(e-t*(e-this.from),e+t*(this.to-e))}wheel(t){!t.ctrlKey&&!t.metaKey||(t.preventDefault(),this.zoom(
Math.exp(Math.max(-120,Math.min(120,t.deltaY))/350),this.timeAt(t.clientX)))}key(t){let e=(this.to-this.from)*.25,o={w:()=>this.
zoom(.5),s:()=>this.zoom(2),a:()=>this.show(this.from-e,this.to-e),d:()=>this.show(this.from+e,this.to+e),n:()=>this.critical.
walk(1),p:()=>this.critical.walk(-1),c:()=>this.critical.toggle(),".":()=>this.hits?.step(1),",":()=>this.hits?.step(-1),
"/":()=>this.search?.input.focus(),Backspace:()=>le(),"[":()=>this.inspector?.event&&this.span?.setEnd("from",this.inspector.
event.ts),"]":()=>this.inspector?.event&&this.span?.setEnd("to",this.inspector.event.ts+this.inspector.event.dur),"?":()=>this.
help?.showModal()}[t.key]??this.inspector?.act(t.key);t.ctrlKey||t.metaKey||t.altKey||!o||(o(),t.preventDefault())}tick(t){
let[e,n]=te("ns",Math.max(this.to,1)/2),o=(this.to-this.from)/7/n;return`${(t/n).toFixed(Math.max(0,Math.min(6,1-Math.floor(
Math.log10(o)))))} ${e}`}};function Et(s){let t=s.analysis.device_use,e=o=>t.reduce((i,r)=>i+r[o],0),n=e("communication_ns")-e("exposed_communicati\
on_ns");return{window:e("window_ns"),busy:e("busy_ns"),span:e("gpu_span_ns"),hidden:n,parts:[{name:"Computing",color:4,ns:e(
"compute_ns")-n},{name:"Computing and communicating",color:3,ns:n},{name:"Exposed communication",color:2,ns:e("exposed_c\
ommunication_ns")},{name:"Copies alone",color:1,ns:e("busy_ns")-e("compute_ns")-e("exposed_communication_ns")},{name:"Id\
le",color:"line",ns:e("idle_ns")}]}}function si(s){let t=0,e=0,n=!1;for(let i of s.analysis.kernels)i.flops===null||!i.flops_per_second||
(t+=i.flops,i.flops_share!==null&&(n=!0,e+=i.flops/i.flops_per_second*1e9*i.flops_share));let o=Et(s).window;return[t&&o?
t/s.span_ns*1e9:null,n&&o?e/o:null]}function ni(s,t){let e=Et(t),n=e.window?1-e.busy/e.window:0,o=t.analysis.idle_causes,
i=p=>o.reduce((w,S)=>w+S[p],0),r=[["before the first GPU event",i("before_first_ns")],["because launches come late",i("h\
ost_wait_ns")],["between kernels",i("kernel_wait_ns")+i("other_ns")],["after the last GPU event",i("after_last_ns")]],[a,
l]=r.reduce((p,w)=>w[1]>p[1]?w:p),c=s.findings?.found??[],d=s.ranks.length>1?c.find(p=>p.id.includes("straggler")):void 0,
u=d??c.find(p=>p.gain||p.cost_ns!==null);return[e.window?`GPU idle ${m(n,"share")}${l?`, mostly ${a}`:""}.`:"No GPU even\
ts.",u?`${u.title[0].toUpperCase()}${u.title.slice(1)}.`:""].filter(Boolean).join(" ")}function dn(s,t){let{analysis:e}=t,
n=Et(t),[o,i]=si(t),r=e.iterations,a=e.serving_phases.at(-1),l=L=>(n.parts.find(ft=>ft.name===L)?.ns??0)/(n.window||1),c=t.
attributed_ns/(t.tree.total_ns||1),d=e.iteration_list.length,u=`${d} iteration${d>1?"s":""} of ${m(r.mean_latency_ns,"ns")}`,
f=l("Computing")+l("Computing and communicating"),p=n.parts[2].ns,w=`of ${m(n.window,"ns")}`,S=`${m(n.busy/(n.span||1),"\
share")} from the first GPU event to the last`,y=i===null?"peak of the device unknown":`${m(i,"share")} of the peak`,k=t.
gpu_events+t.host_calls+t.runtime_calls,M=t.coverage,A=[I("Length",m(t.span_ns,"ns"),d?u:"no iterations marked"),n.window?
I("GPU busy",m(n.busy/n.window,"share"),`${m(n.busy,"ns")} ${w}; ${S}`):null,n.window?I("GPU computing",m(f,"share"),"wi\
thout communication"):null,e.device_use.some(L=>L.communication_ns)?I("Exposed comm.",m(l("Exposed communication"),"shar\
e"),`${m(p,"ns")} of ${m(n.hidden+p,"ns")}`):null,o!==null?I("Achieved",m(o,"flop/s"),y):null,r.samples_per_second?I("Th\
roughput",`${D(r.samples_per_second)} samples/s`,`batch of ${r.batch_size}`):null,a?.tokens_per_second?I("Tokens",`${D(a.
tokens_per_second)} /s`,oi(e.serving_phases)):null,I("Events",m(k,"count"),`${m(t.gpu_events,"count")} on the GPU`),M?I(
"Linked",m(M.linked/(M.total||1),"share"),`of ${m(M.total,"count")} operators`):t.gpu_events?I("Attributed",m(c,"share"),
"of GPU time to operators"):null];return x("overview","Overview",ni(s,t),ii(s),h("div",{class:"tiles"},A))}function un(s,t){
let e=Et(t),n=t.attributed_ns/(t.tree.total_ns||1),o=`of ${m(e.window,"ns")}${t.analysis.device_use.length>1?" on all de\
vices":""}`;return x("trace","Trace",null,e.window?v("Device time",o,Q([{name:"",parts:e.parts,whole:e.window}])):null,Z(
[6,6],v("File",null,ri(t)),v("Links",null,ai(t,n))))}function oi(s){return`steps: ${s.filter(e=>e.phase!=="all").map(e=>`${e.
steps} ${e.phase}`).join(", ")}`}function ii(s){let t=s.ranks.length>1,e=[...s.warnings,...s.ranks.flatMap(n=>n.analysis.
damage.map(o=>t?`Rank ${n.label}: ${o}`:o))];return at("warnings",e)}function ri(s){let{analysis:t}=s,e=[["File",s.file]];
s.rank!==null&&e.push(["Rank",String(s.rank)]);for(let[n,o]of Object.entries(t.devices)){let i=Object.entries(o.peaks).map(
([r,a])=>`${r} ${m(a,"flop/s")}`);e.push([`Device ${n}`,[o.name??"not named in the trace",o.known_as&&o.known_as!==o.name?
`(${o.known_as})`:"",o.memory_gb_s?`· at best ${[...i,m(o.memory_gb_s*1e9,"bytes/s")].join(", ")}`:"· peaks unknown"].
filter(Boolean).join(" ")])}return e.push(["Streams",String(t.streams.length)],["Operators",m(s.host_calls,"count")],["R\
untime calls",s.runtime_calls?`${m(s.runtime_calls,"count")}, ${m(t.host.runtime_ns,"ns")}`:"0"]),t.host.loading_ns&&e.push(
["Data loading",m(t.host.loading_ns,"ns")]),gt(e)}function ai(s,t){let e=s.coverage,n=[...e?.notes??[],...s.analysis.notes],
o=e?[["Operators",`${m(e.linked,"count")} of ${m(e.total,"count")} linked (${m(e.linked/(e.total||1),"share")}) by ${e.method}`],
["Certain",m(e.certain,"count")],["Unverified",`${m(e.equivalent,"count")}; the structure fits, but another run or itera\
tion could be meant`],["GPU time",`${m(e.attached_ns/(e.gpu_ns||1),"share")} of ${m(e.gpu_ns,"ns")} attached to operator\
s`]]:[["Kind","Kineto trace alone, not linked with an Execution Trace"],s.gpu_events?["GPU time",`${m(t,"share")} launch\
ed by operators of the trace`]:null];return[gt(o),at("notes",n)]}function mn(s,t){if(!t.timeline.ts.length)return null;let e=E.
timeline=new ke(t.timeline,t.analysis.devices);e.mount();let n=m(t.timeline.resolution,"ns"),o=t.timeline.resolution?t.timeline.
tiles?` Calls shorter than ${n} are drawn together until the view is close enough.`:` Calls shorter than ${n} are merged\
 with their neighbors.`:"",i=t.timeline.hidden?` ${t.timeline.hidden} lanes with the least time are left out.`:"";return x(
"timeline","Timeline",`${t.gpu_events?"Streams on top, CPU threads below with their calls nested; pale where short calls\
 leave gaps.":"CPU threads with their calls nested; pale where short calls leave gaps."}${o}${i}`,v(null,null,e.node))}function He(s){return s.rank!==null&&s.label===String(s.rank)?`rank ${s.rank}`:s.label}function pn(s){if(s.ranks.length<
2)return null;let t=s.ranks.map(c=>({rank:c,use:Et(c)})),e=t.map(({rank:c,use:d},u)=>({place:u,name:He(c),file:c.file,span:c.
span_ns,latency:c.analysis.iterations.mean_latency_ns,busy:d.window?d.busy/d.window:null,computing:d.window?d.parts[0].ns+
d.hidden:null,communication:d.hidden+d.parts[2].ns,exposed:d.parts[2].ns,idle:d.parts[4].ns,waiting:null,events:c.gpu_events,
linked:c.coverage?c.coverage.linked/(c.coverage.total||1):null})),n=Math.min(...e.map(c=>c.communication));for(let c of e)
c.waiting=c.communication-n;let o=c=>{let d=e.map(u=>u[c]).filter(u=>u!==null);return d.length?Math.max(...d)-Math.min(...d):
null},i=e.reduce((c,d)=>d.communication<c.communication?d:c),r=e.some(c=>c.communication>0),a=e.reduce((c,d)=>c+d.events,
0),l=Math.max(...e.map(c=>c.span));return x("job","Ranks","The ranks of the job side by side. A click on a bar shows tha\
t rank in the sections below.",h("div",{class:"tiles"},I("Ranks",String(e.length),`${m(a,"count")} GPU events`),I("Longe\
st trace",m(l,"ns"),`${m(o("span"),"ns")} longer than the shortest`),I("Spread of computing",m(o("computing"),"ns"),"bet\
ween the ranks that compute most and least"),r?I("Last to arrive",i.name,"shortest in communication: the others wait for\
 it"):null),v("Device time by rank",null,Q(t.map(({rank:c,use:d},u)=>({name:e[u].name,parts:d.parts,whole:d.window})),{click:ot})),
$("Numbers by rank",null,"ranks",e,{sort:"name",click:c=>ot(c.place)}))}function fn(s,t){let e=t.analysis.kernels.map((o,i)=>({...o,kind:t.kernel_kinds[i],kernel_kind:s.gpu_kinds[t.kernel_kinds[i]].
name}));if(!e.length)return null;let n=e.filter(o=>o.intensity&&o.flops_per_second);return x("kernels","Kernels and roof\
line","Kernels against the peaks of the device. Under the slope, memory bandwidth is the limit; under the roof, arithmet\
ic. The area of a circle is its share of the time.",n.length?hi(s,t,n):v("Roofline",null,et("No kernel's FLOPs and bytes\
 are known: the trace has no shapes (record_shapes), or only operators that move data.")),$("Kernels",G(t,"kernels"),"ke\
rnels",e,{sort:"total_ns",jump:li}),$("GEMMs",G(t,"gemms")??"batch × (m, k) · (k, n), over the time of all kernels of th\
e operator","gemms",t.analysis.gemms,{sort:"total_ns",jump:ci}))}var li=({device:s,kernel:t,dtype:e})=>({gpu:!0,device:s,
name:t,has:(n,o,i)=>(i.dtypes[n.dtype[o]]??"")===e,orElse:{gpu:!0,device:s,name:t}}),ci=({device:s,op:t,batch:e,m:n,n:o,
k:i,count:r,flops:a,kernels:l})=>({gpu:!0,device:s,has:(c,d)=>c.flops[d]===a/r||c.flops[d]===2*e*n*o*i,fits:async(c,d)=>{
let u=await ce(c);return u!==null&&l.includes(d.names[c.name])&&d.names[u.name]===t}});function hi(s,t,e){let n=t.analysis.
devices[e[0].device],o=h("div"),i=s.gpu_kinds,r=e.filter(T=>T.device===e[0].device),l=[...new Set(r.map(T=>T.dtype))].map(
T=>[T,n.peaks[T]]).filter(T=>T[1]),c=n.memory_gb_s?n.memory_gb_s*1e9:null,d=Math.max(0,...l.map(T=>T[1])),u=r.map(T=>T.intensity),
f=r.map(T=>T.flops_per_second),p=10**Math.floor(Math.log10(Math.min(...u))),w=10**Math.ceil(Math.log10(Math.max(...u,c?3*
d/c:1))),S=10**Math.floor(Math.log10(Math.min(...f))),y=10**Math.ceil(Math.log10(Math.max(...f,d)*1.01)),k=Math.max(...r.
map(T=>T.total_ns)),M=ae(r,i),A=()=>({color:g.value("muted"),width:1.5}),L=()=>({type:"line",symbol:"none",silent:!0,lineStyle:A()});
z(o,400,()=>({grid:{left:84,right:130,top:16,bottom:46},tooltip:P(T=>{let R=T.data.row;return R?N(B(R.kernel,180),[["ope\
rators",B(R.ops,60)],["dtype",R.dtype||"–"],["FLOP per byte",D(R.intensity)],["achieved",m(R.flops_per_second,"flop/s")],
["of the whole operator",m(R.operator_flops_per_second,"flop/s")],["of peak",m(R.flops_share,"share")],["memory",`${m(R.
bytes_per_second,"bytes/s")} (${m(R.bytes_share,"share")})`],["calls",m(R.count,"count")],["total time",m(R.total_ns,"ns")],
["bound by",R.bound||"–"]]):null}),xAxis:O({type:"log",min:p,max:w,name:"FLOP per byte",nameLocation:"middle",nameGap:28,
axisLabel:{formatter:se}}),yAxis:O({type:"log",min:S,max:y,unit:"flop/s"}),series:[...l.map(([T,R])=>({...L(),tooltip:{show:!1},
z:1,data:[...c?[[Math.max(p,S/c),Math.max(p*c,S)],[R/c,R]]:[[p,R]],[w,R]].filter(F=>F[0]>=p),endLabel:{show:!0,formatter:`${T}\
 ${rt(R,"flop/s")}`,color:A().color,fontSize:11.5}})),...l.length||!c?[]:[{...L(),data:[[p,p*c],[w,w*c]]}],...M.map(({name:T,
color:R})=>({name:T,type:"scatter",z:3,symbol:lt[V(R)],itemStyle:{color:g.color(R),opacity:.78,borderColor:g.value("card"),
borderWidth:1},symbolSize:(F,it)=>7+26*Math.sqrt(it.data.row.total_ns/k),data:r.filter(F=>F.kernel_kind===T).map(F=>({value:[
F.intensity,F.flops_per_second],row:F}))}))]}));let ft=`${n.known_as??n.name??"device"}${c?`, memory ${m(c,"bytes/s")}`:
", peaks unknown"} · ${r.length} of ${t.analysis.kernels.length} kernels, those whose FLOPs and bytes are known`;return v(
"Roofline",ft,j(M),o)}var di=8;function Ut(s,t,e,{mark:n=null}={}){let o=h("div"),i=t.slice(0,di);z(o,230,()=>({grid:{left:74,right:24,top:18,
bottom:26},tooltip:P(a=>N(m(a[0].value[0],"ns"),a.map(l=>[l.seriesName,m(l.value[1],e)])),{trigger:"axis"}),xAxis:O({type:"\
value",...s.step?Ft(s):{min:0},unit:"ns",axisLabel:{hideOverlap:!0}}),yAxis:O({type:"value",min:0,unit:e}),dataZoom:[{type:"\
inside",filterMode:"none"}],series:i.map((a,l)=>({name:a.title,type:"line",step:"end",showSymbol:!1,lineStyle:{width:1.4,
color:g.color(l),type:Ze[V(l)]},itemStyle:{color:g.color(l)},areaStyle:i.length===1?{color:g.color(l),opacity:.14}:void 0,
data:a.ts.map((c,d)=>[c,a.values[d]]),markPoint:n&&l===0?ui(n):void 0}))}));let r=t.length>i.length?` (the first ${i.length}\
 of ${t.length})`:"";return h("div",{},o,j(i.map((a,l)=>({name:a.title,color:l})),{more:r}))}function ui({ts:s,value:t,name:e}){
return{symbol:"circle",symbolSize:9,data:[{coord:[s,t],name:e}],label:{show:!0,position:"left",distance:8,color:g.value(
"text"),formatter:()=>e}}}var mi=({device:s,kind:t})=>({gpu:!0,device:s,has:(e,n,o,i)=>/^mem(cpy|set)/i.test(o.names[i])&&o.names[i].toLowerCase().
includes(t.toLowerCase())}),pi=({op:s,kernels:t})=>({gpu:!1,name:s,has:(e,n)=>e.device_events[n]===t.split(" | ").length,
orElse:{gpu:!1,name:s}});function gn(s,t){let{idle_causes:e,launches:n,queues:o,copies:i,sequences:r}=t.analysis;if(!n.length&&
!e.length&&!i.length)return null;let a=d=>o.find(({device:u,stream:f})=>u===d.device&&f===d.stream),l=d=>t.counters.filter(
u=>u.kind===d),c=e.map(d=>({...a(d),...d}));return x("launches","Launches, queues, copies","Why streams wait, how long l\
aunches take and wait, how fast copies are, and which kernels operators launch in a row.",$("Why streams wait, and their\
 queues",`host: launched late; kernel: gaps below ${t.analysis.consecutive_kernel_delay_ns/1e3} µs; before and after: be\
fore the first and after the last GPU event; a queue of 1,024 launches blocks the host`,"idle_causes",c,{sort:"idle_ns",
jump:d=>({...Gt(d),gap:!0})}),l("queue").length?v("Launches in the queue","launched and not begun",Ut(t,l("queue"),"")):
null,$("Launches",null,"launches",n,{sort:"count"}),i.length?v("Copies and memsets",null,l("bandwidth").length?Ut(t,l("b\
andwidth"),"bytes/s"):null,W("copies",i,{sort:"bytes",jump:mi})):null,$("Sequences of kernels","what one call of an oper\
ator launches, in order, where it recurs; candidates for fusion","sequences",r.filter(d=>d.count>1),{sort:"gpu_ns",jump:pi}))}var fi={"allocator events":"what the allocators recorded (profile_memory)","tensors of the ET":"the tensors of the Execu\
tion Trace, from the call that makes a storage to the last that uses it"};function wn(s,t){let{memory:e,memory_holders:n,
memory_outliving:o}=t.analysis;if(!e.length)return null;let i=e.filter(r=>r.peak_bytes>=.01*e[0].peak_bytes);return x("m\
emory","Memory",`How much is allocated over time, who holds it at the peak, and what outlives its iteration; from ${fi[e[0].
source]}.`,...i.map(r=>gi(t,r,n)),$("Devices",null,"memory",e,{sort:"peak_bytes",filter:!1,jump:r=>yn(t,r)}),$("What out\
lives its iteration","allocated in one iteration and held at its end, over all iterations","memory_outliving",o,{sort:"b\
ytes",jump:({operator:r})=>({gpu:!1,name:r})}))}function gi(s,t,e){let n=e.filter(l=>l.device===t.device),o={};for(let l of n)
o[l.category]=(o[l.category]??0)+l.bytes;let i=Object.keys(o).sort((l,c)=>o[c]-o[l]),r={ts:t.peak_ns-s.start_ns,value:t.
peak_bytes,name:`peak ${m(t.peak_bytes,"bytes")}`},a=l=>l.device===t.number&&["allocated","reserved"].includes(l.kind);return v(
`Allocated on ${t.device}`,`peak ${m(t.peak_bytes,"bytes")} at ${m(r.ts,"ns")}`,Ut(s,s.counters.filter(a),"bytes",{mark:r.
ts>=0?r:null}),h("h3",{},"Held at the peak"),Q([{name:"",whole:t.peak_bytes,parts:i.map((l,c)=>({name:l,color:c,ns:o[l]}))}],
{unit:"bytes"}),W(`memory_holders ${t.device}`,n.map(l=>({...l,modules:l.modules.replaceAll("nn.Module: ",""),share:l.bytes/
(t.peak_bytes||1)})),{sort:"bytes",jump:l=>wi(l)??yn(s,t)}))}var yn=(s,{peak_ns:t})=>({from:t-s.start_ns,to:t-s.start_ns}),
wi=({operator:s,source:t})=>E.timeline?.names.has(ie(s))?{...t?_t(t,!1):{gpu:!1},name:s,orElse:{gpu:!1,name:s}}:null;function bn(s,t){let{operators:e,modules:n}=t.analysis;if(!e.length&&!n.length)return null;let o=e.some(i=>i.device_total_ns);
return x("operators","Operators and modules","Self is without what runs inside, total with it; an operator inside one of\
 the same name counts once.",$("By operator",G(t,"operators"),"operators",e,{sort:o?"device_self_ns":"self_ns",jump:({op:i})=>({
gpu:!1,name:i})}),$("By module class",G(t,"modules")??"modules of one class at one place in one row","modules",n,{sort:"",
jump:yi}))}function yi({path:s,device_total_ns:t}){let e=s.split(" / ").at(-1),n=new Map,o=new Map,i=(l,c,d)=>{let u=nt(
xt(l,c));return u===s&&jt(d)===e||(u?`${u} / ${jt(d)}`:jt(d))===s},r=(l,c)=>`${nt((l.modules[c]??"").split(" / "))} / `.
startsWith(`${s} / `),a=(l,c,d)=>{let u=l.get(c)??d();return l.set(c,u),u};return{gpu:!1,has:({path:l},c,d,u)=>a(n,`${l[c]}\
 ${u}`,()=>i(d,l[c],d.names[u])),orElse:{gpu:t>0,has:({module:l},c,d)=>a(o,l[c],()=>r(d,l[c]))}}}var bi=[["t1","T1","between operators","Gap between an operator and the next one of the same thread and caller"],["t2","\
T2","before the first launch","From an operator's start to its first launch"],["t3","T3","after the last launch","From t\
he end of an operator's last launch to its end"],["t4","T4","launching call","The runtime call itself, as measured"],["t\
5","T5","between launches","Between two launches of an operator; of one without launches its own time"]];function vn(s,t){
let{overheads:e,host_ops:n}=t.analysis,o=bi.map(([a,l,c,d])=>({key:a,title:l,text:c,hint:d,...a==="t1"?e.t1:e.all[a]??{}})).
filter(a=>a.n);if(!o.length&&!n.length)return null;let i=[...new Set(["t2","t3","t5"].flatMap(a=>Object.keys(e[a])))].map(
a=>{let l=n.find(d=>d.op===a),c=d=>e[d][a]?e[d][a].mean*1e3:null;return{op:a,count:l?.count??null,total:l?.total_ns??null,
t2:c("t2"),t3:c("t3"),t5:c("t5"),launches:rs(e.launches[a]??[]),n:Math.max(...["t2","t3","t5"].map(d=>e[d][a]?.n??0))}}),
r=Object.entries(e.t4).map(([a,l])=>({call:a,n:l.n,mean:l.mean*1e3,std:l.std*1e3,all:l.mean_with_outliers*1e3,outliers:l.
outliers,sum:l.mean_with_outliers*1e3*(l.n+l.outliers)}));return x("overheads","Launch overheads",`What the host spends \
around operators and launches, less ${e.cpu_event_overhead_us} µs for every event of the profiler; outliers left out.`,
Z([5,7],v("The five overheads","mean; whiskers: one standard deviation",o.length?ki(o):et("No operator of the trace laun\
ches anything.")),v("T4 by runtime call",null,r.length?vi(r):et("The trace has no launches."))),v("By operator","topmost\
 operators; host time holds everything they call",W("overheads",i,{sort:"total",jump:({op:a})=>({gpu:!1,name:a})})))}function vi(s){
return W("t4",s,{sort:"sum"})}function ki(s){let t=h("div"),e=s.slice().reverse();return z(t,34*e.length+40,()=>({grid:{
left:158,right:20,top:4,bottom:26},tooltip:P(n=>{let o=e[n.dataIndex];return N(`${o.title}: ${o.hint}`,[["mean",`${D(o.mean)}\
 µs`],["standard deviation",`${D(o.std)} µs`],["rows",m(o.n,"count")],["clipped to 0",m(o.clipped,"count")],["outliers\
 left out",m(o.outliers,"count")],["mean with them",`${D(o.mean_with_outliers)} µs`]])}),xAxis:O({type:"value",min:0,splitNumber:4,
axisLabel:{formatter:n=>`${n} µs`}}),yAxis:O({type:"category",data:e.map(n=>`${n.title} ${n.text}`),axisLine:{show:!1},
axisLabel:{color:g.value("text")}}),series:[{type:"bar",barWidth:16,itemStyle:{color:g.color(0),borderRadius:[0,3,3,0]},
data:e.map(n=>n.mean)},{type:"custom",silent:!0,z:5,data:e.map((n,o)=>[Math.max(0,n.mean-n.std),n.mean+n.std,o]),encode:{
x:[0,1],y:2},renderItem:(n,o)=>{let[i,r]=o.coord([o.value(0),o.value(2)]),[a]=o.coord([o.value(1),o.value(2)]),l={stroke:g.
value("text"),lineWidth:1.2,opacity:.75};return{type:"group",children:[[i,r,a,r],[i,r-4,i,r+4],[a,r-4,a,r+4]].map(([c,d,
u,f])=>({type:"line",shape:{x1:c,y1:d,x2:u,y2:f},style:l}))}}}]})),t}function kn(s,t){let e=t.path_rows;if(!e?.length||typeof e=="string")return null;let n=e.reduce((a,l)=>a+l.ns,0),o=new Map;
for(let{kind:a,ns:l}of e)o.set(a,(o.get(a)??0)+l);let i={...Ge},r=[...o].filter(([,a])=>a>0).sort((a,l)=>l[1]-a[1]);return r.
forEach(([a],l)=>i[a]??=[1,3,5,6,7,8,9][l%7]),x("path","Critical path",`The longest path of the replay: what does not li\
e on it can become faster without any gain. All rows together are ${m(n,"ns")}${t.step?", the part of this step":""}.`,v(
"By kind",null,Q([{name:"",whole:n,parts:r.map(([a,l])=>({name:a,color:i[a],ns:l}))}])),$("By kind, kernel, operator, mo\
dule and line",null,"critical_path",e.map(a=>({...a,share:a.ns/(n||1)})),{sort:"ns",jump:xi}))}function xi({id:s,start:t,
end:e}){let n=t===null?null:{from:t,to:e};return s<0?n:{...dt([s]),orElse:n}}var Ct=16,At=14,xn=26,_i=38,$i=100,xe=[{name:"Computing",color:4},{name:"Copy",color:9},{name:"Communication",color:2},{
name:"Host call",color:0}],qe={name:"Waits for the last to arrive",color:1},Kt={name:"Collective, all have come",color:3},
_e=class{constructor(t,e,n){this.job=t,this.labels=e,this.iterations=n,this.at=-1,this.from=0,this.to=t.span,this.width=
0,this.tops=[];let o=_i;for(let a of t.ranks)this.tops.push(o),o+=a.lanes.length*Ct+At+xn;this.height=o;let i="Ranks on \
one clock; keys w and s zoom, a and d move, n and p go to the next and previous collective",r="n and p, or the buttons, \
go from collective to collective.";this.canvas=h("canvas",{tabindex:0,role:"img","aria-label":i}),this.picked=h("div",{class:"\
picked",role:"status"},r),this.hover=h("div",{class:"hover",hidden:!0}),this.build(),this.whole={from:0,to:t.span},this.
view(0,t.span)}build(){let t=(a,l,c)=>h("button",{type:"button",title:l,onclick:c},a),e=this.iterations.length?h("select",
{"aria-label":"Iteration",onchange:a=>this.step(a.target.value)},h("option",{value:""},"All iterations"),this.iterations.
map((a,l)=>h("option",{value:l},a.name))):null;this.steps=e;let n=[t("‹ Collective","The one before (p)",()=>this.go(this.
at-1)),t("Collective ›","The next one (n)",()=>this.go(this.at+1)),t("Longest wait","The collective in which ranks wai\
t longest together",()=>this.go(this.worst()))],o=[t("‹","The iteration before",()=>this.turn(-1)),e,t("›","The next\
 iteration",()=>this.turn(1))],i=h("div",{class:"tools"},this.job.collectives.length?n:null,e?o:null,h("span",{class:"pu\
sh"}),t("+","Zoom in (w)",()=>this.zoom(.4)),t("−","Zoom out (s)",()=>this.zoom(2.5)),t("Fit","All of it: the whole jo\
b, or the step chosen",()=>this.view(this.whole.from,this.whole.to))),r=h("div",{class:"lanes ranks"},this.job.ranks.map(
(a,l)=>{let c=a.lanes.map(u=>h("i",{},u)),d=h("div",{class:"lane"},h("b",{},this.labels[l]),c);return d.style.top=`${this.
tops[l]-Ct}px`,d}));this.node=h("div",{},i,h("div",{class:"timeline"},r,h("div",{class:"frame"},this.canvas,this.hover)),
this.picked),this.canvas.addEventListener("keydown",a=>this.key(a)),this.canvas.addEventListener("wheel",a=>this.wheel(a),
{passive:!1}),this.canvas.addEventListener("pointerdown",a=>this.grab(a)),this.canvas.addEventListener("pointermove",a=>this.
point(a)),this.canvas.addEventListener("pointerleave",()=>this.hover.hidden=!0),this.canvas.addEventListener("click",a=>this.
click(a)),new ResizeObserver(()=>this.draw()).observe(this.canvas.parentNode)}view(t,e){let n=Math.min(Math.max(e-t,$i),
this.job.span||1);this.from=Math.min(Math.max(0,t),Math.max(0,this.job.span-n)),this.to=this.from+n,this.canvas.dataset.
view=`${this.from} ${this.to}`,this.draw()}zoom(t,e=(this.from+this.to)/2){this.view(e-(e-this.from)*t,e+(this.to-e)*t)}go(t){
let e=this.job.collectives;if(!e.length)return;this.at=(t+e.length)%e.length;let n=e[this.at],o=Math.min(...n.start),i=Math.
max(...n.end);this.view(o-(i-o)*.6,i+(i-o)*.6),this.describe(n)}worst(){let t=e=>(e.wait??[]).reduce((n,o)=>n+o,0);return this.
job.collectives.reduce((e,n,o,i)=>t(n)>t(i[e])?o:e,0)}step(t){let e=this.iterations[Number(t)];e?this.view(e.start,e.end):
this.view(0,this.job.span)}turn(t){let e=this.iterations.length,n=this.steps.value===""?t>0?-1:e:Number(this.steps.value);
this.steps.value=(n+t+e)%e,this.step(this.steps.value)}describe(t){let e=(t.wait??[]).map((r,a)=>({wait:r,name:this.labels[t.
members[a]]})).filter(({wait:r})=>r>0);e.sort((r,a)=>a.wait-r.wait);let n=e.slice(0,8).map(({wait:r,name:a})=>`${a} wait\
s ${m(r,"ns")}`),o=n.length?`; ${n.join(", ")}${e.length>n.length?", …":""}`:"",i=`${b.format(this.at+1)} of ${b.format(
this.job.collectives.length)}`;this.picked.dataset.at=this.at,this.picked.replaceChildren(h("code",{},`${t.kind}${t.bytes>=
0?` ${m(t.bytes,"bytes")}`:""}`),` ${t.group?`group ${t.group}, `:""}${t.members.length} ranks, ${i}`,t.last===null?" · \
its ranks do not have to wait for each other":` · ${this.labels[t.last]} is the last to arrive${o}`)}key(t){let e=(this.
to-this.from)/5,n={w:()=>this.zoom(.6),s:()=>this.zoom(1/.6),a:()=>this.view(this.from-e,this.to-e),d:()=>this.view(this.
from+e,this.to+e),n:()=>this.go(this.at+1),p:()=>this.go(this.at-1),Escape:()=>this.view(0,this.job.span)}[{ArrowLeft:"a",
ArrowRight:"d","+":"w","-":"s"}[t.key]??t.key];!n||t.ctrlKey||t.metaKey||t.altKey||(t.preventDefault(),n())}wheel(t){t.ctrlKey&&
(t.preventDefault(),this.zoom(Math.exp(Math.max(-1,Math.min(1,t.deltaY/200))),this.time(t.offsetX)))}grab(t){let{from:e,
to:n}=this;Xt(o=>{let i=(t.clientX-o.clientX)/this.width*(n-e);this.view(e+i,n+i)})}time(t){return this.from+t/this.width*
(this.to-this.from)}x(t){return(t-this.from)/(this.to-this.from)*this.width}bar(t){return this.tops[t]+this.job.ranks[t].
lanes.length*Ct}collectiveAt(t,e){let n=this.time(t),o=2*(this.to-this.from)/this.width,i=(r,a,l)=>e>=a&&e<a+At&&r.start[l]-
o<=n&&n<=r.end[l]+o;return this.job.collectives.findIndex(r=>r.members.some((a,l)=>i(r,this.bar(a),l)))}click(t){let e=this.
collectiveAt(t.offsetX,t.offsetY);e<0||(this.at=e,this.draw(),this.describe(this.job.collectives[e]))}point(t){let{offsetX:e,
offsetY:n}=t,o=this.collectiveAt(e,n),i=o>=0?this.collective(this.job.collectives[o]):this.blockAt(e,n);this.hover.hidden=
!i,i&&(this.hover.replaceChildren(N(i[0],i[1].slice(0,16))),this.hover.style.left=`${Math.min(e+14,Math.max(0,this.width-
this.hover.offsetWidth-4))}px`,this.hover.style.top=`${n+14}px`)}collective(t){let e=o=>t.wait?`, waits ${m(t.wait[o],"n\
s")}`:"",n=(o,i)=>[this.labels[o],m(t.end[i]-t.start[i],"ns")+e(i)];return[t.kind,t.members.map(n)]}blockAt(t,e){let n=this.
tops.findLastIndex(c=>e>=c),o=this.job.ranks[n],i=o?Math.floor((e-this.tops[n])/Ct):-1,r=this.time(t);if(!o||i<0||i>=o.lanes.
length)return null;let a=o.ts.findIndex((c,d)=>o.lane[d]===i&&c<=r&&r<=c+o.dur[d]);if(a<0)return null;let l=o.count[a];return[
this.job.names[o.name[a]],[[this.labels[n],o.lanes[i]],["time",m(o.dur[a],"ns")],l>1?["together",`${b.format(l)} events,\
 the longest named`]:["kind",xe[o.kind[a]].name]]]}draw(){let t=this.canvas.parentNode?.clientWidth;if(!t)return;this.width=
t;let e=devicePixelRatio||1;this.canvas.width=t*e,this.canvas.height=this.height*e,this.canvas.style.width=`${t}px`,this.
canvas.style.height=`${this.height}px`;let n=this.canvas.getContext("2d");n.scale(e,e),this.drawAxis(n),this.job.ranks.forEach(
(i,r)=>this.drawRank(n,i,r));let o=this.job.collectives.map((i,r)=>({one:i,at:r})).filter(({one:i})=>Math.min(...i.start)<=
this.to&&Math.max(...i.end)>=this.from);for(let{one:i,at:r}of o)this.drawJoint(n,i,r===this.at);for(let{one:i,at:r}of o)
this.drawBars(n,i,r===this.at)}drawAxis(t){let e=this.to-this.from,n=e/Math.max(2,this.width/130),o=10**Math.floor(Math.
log10(n)),i=[1,2,5,10].map(r=>r*o).find(r=>r>=n)??o;t.font=`12px ${g.value("sans")}`;for(let r=Math.ceil(this.from/i)*i;r<=
this.to;r+=i)t.fillStyle=g.value("line"),t.fillRect(this.x(r),0,1,this.height),t.fillStyle=g.value("muted"),t.fillText(rt(
r,"ns"),this.x(r)+4,13)}drawRank(t,e,n){let o=this.tops[n];t.fillStyle=g.value("line"),t.fillRect(0,o-xn+8,this.width,1);
let i=xe.map(({color:r})=>Yt(t,r));for(let r=0;r<e.ts.length;r++){let a=this.x(e.ts[r]),l=this.x(e.ts[r]+e.dur[r]);l<0||
a>this.width||(t.fillStyle=i[e.kind[r]],t.fillRect(Math.max(-1,a),o+e.lane[r]*Ct+1,Math.max(1,Math.min(l,this.width+1)-Math.
max(-1,a)),Ct-3))}}drawJoint(t,e,n){t.fillStyle=g.color(Kt.color),t.strokeStyle=n?g.value("text"):g.color(Kt.color),t.lineWidth=
n?1.5:.75;for(let o=0;o+1<e.members.length;o++){let i=this.bar(e.members[o])+At-2,r=this.bar(e.members[o+1])+1;t.globalAlpha=
n?.3:.14,t.beginPath(),t.moveTo(this.x(e.start[o]),i),t.lineTo(this.x(e.end[o]),i),t.lineTo(this.x(e.end[o+1]),r),t.lineTo(
this.x(e.start[o+1]),r),t.closePath(),t.fill(),t.globalAlpha=n?1:.5,t.stroke()}t.globalAlpha=1}drawBars(t,e,n){e.members.
forEach((o,i)=>{let r=this.bar(o)+1,a=this.x(e.start[i]),l=Math.max(a+1,this.x(e.end[i])),c=e.wait?Math.min(l,this.x(e.start[i]+
e.wait[i])):a;t.fillStyle=Yt(t,qe.color),t.fillRect(a,r,c-a,At-3),t.fillStyle=Yt(t,Kt.color),t.fillRect(c,r,l-c,At-3),e.
last===o&&(t.fillStyle=g.value("text"),t.beginPath(),t.moveTo(a-5,r-1),t.lineTo(a+5,r-1),t.lineTo(a,r+6),t.fill()),n&&(t.
strokeStyle=g.value("text"),t.lineWidth=1.5,t.strokeRect(a,r,l-a,At-3))})}};function _n(s){let t=s.job;if(!t)return null;let e=s.ranks.map(He),n=t.ranks[0].begin-t.ranks[0].first,o=s.ranks[0].analysis.
iteration_list.map(p=>({name:p.name,start:p.start+n,end:p.end+n})),i=new _e(t,e,o),r=t.ranks.map((p,w)=>({...p,at:w,label:e[w]})),
a=t.collectives.map((p,w)=>({at:w,kind:p.kind,group:p.group,bytes:p.bytes<0?null:p.bytes,start:Math.min(...p.start),length:Math.
max(...p.end)-Math.min(...p.start),waited:p.wait?.reduce((S,y)=>S+y,0)??null,longest:p.wait?Math.max(...p.wait):null,last:p.
last===null?null:e[p.last]}));if(s.ranks[0].step&&o.length){let{start:p,end:w}=o[0];i.whole={from:p,to:w},i.view(p,w)}ne(
i);let l=xe.filter((p,w)=>t.ranks.some(S=>S.kind.includes(w))),c=p=>{i.node.scrollIntoView({block:"nearest"}),i.go(p.at)},
d=r.some(p=>p.offset!==null)?"Clocks are set by the collectives that no rank can leave before all have come: these end a\
t the same time.":"No collective joins the ranks, so their clocks are as recorded.",u=[t.left_out?`${b.format(t.left_out)}\
 collectives with the least waiting are left out`:null,t.unmatched?`${b.format(t.unmatched)} that not all ranks of the g\
roup have alike`:null].filter(Boolean),f=s.many?`Streams of the ${t.ranks.length} ranks shown in detail, of ${b.format(s.
many.numbers.length)},`:"Streams of all ranks,";return x("axis","Ranks on one clock",`${f} and below them the collective\
s, joined from rank to rank; a triangle marks the rank that came last. ${d}`,v(null,null,j([...l,Kt,qe]),i.node),$("Coll\
ectives",u.join("; ")||"a click on a row shows it above","collectives",a,{sort:"waited",click:c}),$("Who waits for whom",
null,"waits",r,{sort:"caused",filter:!1,click:p=>ot(p.at)}))}var Si=200;function $n(s,t){let{sources:e,phases:n}=t.analysis;if(!e.length&&!n.some(r=>r.phase!=="not known"))return null;
let o=e.some(r=>r.device_self_ns),i=o?"device_self_ns":"host_ns";return x("source","Source",e.length?"Work counts to the\
 innermost line of own code that called it, backward work to that of its forward operator.":null,e.length?Oi(e,i,G(t,"so\
urces")):null,$("By source line",G(t,"sources"),"sources",e.map(r=>({...r,place:`${r.file}:${r.line}`,remark:[r.own?"":"\
not own code",r.fused?`${r.fused} fused`:""].filter(Boolean).join(", ")})),{sort:i,jump:Sn}),$("By phase",null,"phases",
n,{sort:"",filter:!1,jump:Mi}))}var Sn=({place:s,device_self_ns:t})=>_t(s,t>0),Mi=({phase:s,launches:t})=>({gpu:t>0,has:(e,n,o)=>(o.
phases[e.phase[n]]||"not known")===s});function Oi(s,t,e){let n=new Map;for(let d of s)d[t]>0&&n.set(d.file,[...n.get(d.
file)??[],d]);let o=d=>d.reduce((u,f)=>u+f[t],0),i=Math.max(...s.map(d=>d[t]),1),r=[...n].sort((d,u)=>o(u[1])-o(d[1])),a=h(
"div",{class:"files"}),l=h("input",{type:"search",placeholder:"Search files and functions…","aria-label":"Search files"}),
c=()=>{let d=l.value.toLowerCase(),u=Si;a.replaceChildren();for(let[f,p]of r){let w=f.toLowerCase().includes(d),S=p.filter(
k=>w||k.function.toLowerCase().includes(d));if(!S.length||u<=0)continue;let y=S.sort((k,M)=>k.line-M.line).slice(0,u);u-=
y.length,a.append(h("h4",{},h("code",{},f)," ",H(m(o(p),"ns"))),...y.map(k=>{let M=h("span",{class:"heat"}),A=k[t]/i;return M.
style.width=`${(100*A).toFixed(2)}%`,h("button",{type:"button",class:"line","data-line":`${f}:${k.line}`,title:`${f}:${k.
line} ${k.function}`,onclick:L=>kt(Sn({...k,place:`${f}:${k.line}`}),L.currentTarget)},M,h("span",{class:"number"},String(
k.line)),h("code",{},k.function),h("span",{class:"push"},m(k[t],"ns")))}))}};return l.addEventListener("input",c),c(),v(
"Lines by file",e,l,a)}var Ei=[dn,Us,pn,mn,he,_n,kn,Xs,un,As,bn,$n,Ds,fn,vn,Fs,gn,wn,Ts,Js],Mn=0;async function Xe(s,t=null){let{report:e}=E,n=++Mn,
o=e.ranks[s],i=t===null?null:o.steps[t],r=i?await Ps(e,i):e;if(typeof o.path_rows=="string"&&(o.path_rows=await bt(o.path_rows)),
n!==Mn)return;let a=r.ranks[s];for(let c of q)c.instance?.dispose();q.clear(),as(),e.difference||is(o.analysis.kernel_labels);
let l=e.difference?Is:Ei;C("sections").replaceChildren(...l.map(c=>c(r,a)).filter(Boolean)),cs(),i&&E.timeline?.showStep(
i);for(let c of q)c.draw();C("subtitle").textContent=[...new Set(Object.values(a.analysis.devices).map(c=>c.name??"unnam\
ed device")),...i?[`only ${i.name}`]:[]].join(", "),Ci(),Ue(),document.documentElement.dataset.step=i?String(i.number):""}
var Ve=null;function Ci(){Ve?.disconnect();let s=new Set;Ve=new IntersectionObserver(t=>{for(let n of t)n.isIntersecting?
s.add(n.target):s.delete(n.target);let e=[...document.querySelectorAll("section")].find(n=>s.has(n));us(e?.id)},{rootMargin:"\
-70px 0px -55% 0px"});for(let t of document.querySelectorAll("section"))Ve.observe(t)}var On={auto:"◐ Auto",light:"☀ L\
ight",dark:"☾ Dark"};function Ht(s){g.choice=s,g.apply(),C("theme").textContent=On[s];for(let t of q)t.draw()}function Ai(){
document.documentElement.classList.add("paper"),g.paper=!0,Ht(g.choice);for(let s of yt)s();for(let s of document.querySelectorAll(
"details.more, .finding details"))s.open=!0}function Li(){document.documentElement.classList.remove("paper"),g.paper=!1,
Ht(g.choice);for(let s of yt)s()}async function Ti(){E.report=JSON.parse(C("report").textContent),E.draw=Xe;let{report:s}=E;
ds(),addEventListener("hashchange",Ue),C("title").textContent=s.title,C("footer").textContent=`etplus ${s.version} · tim\
es are as the profiler recorded them, its own cost included · charts by Apache ECharts`;let t=s.ranks.length>1;C("rank-\
pick").hidden=!t,C("rank").append(...s.ranks.map((o,i)=>h("option",{value:i},o.label))),C("rank").addEventListener("chan\
ge",()=>ot(Number(C("rank").value))),C("step").addEventListener("change",()=>Xe(Number(C("rank").value),C("step").value===
""?null:Number(C("step").value))),je(s.ranks[0]);let e=Object.keys(On);C("theme").addEventListener("click",()=>Ht(e[(e.indexOf(
g.choice)+1)%e.length])),g.system.addEventListener("change",()=>g.choice==="auto"&&Ht("auto")),addEventListener("beforep\
rint",Ai),addEventListener("afterprint",Li);let n=0;addEventListener("resize",()=>{clearTimeout(n),n=window.setTimeout(()=>{
for(let o of q)o.instance?.resize()},120)}),Ht("auto"),await Xe(0),document.documentElement.dataset.ready="yes"}Ti();})();

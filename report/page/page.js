"use strict";(()=>{function h(s,t={},...e){let n=document.createElement(s);for(let[o,i]of Object.entries(t))i==null||i===!1||(o==="class"?n.
className=i:o.startsWith("on")?n.addEventListener(o.slice(2),i):o.startsWith("--")?n.style.setProperty(o,i):n.setAttribute(
o,i===!0?"":i));return n.append(...e.flat(1/0).filter(o=>o!=null)),n}var X=s=>s?h("small",{},s):null,gt=s=>h("p",{class:"\
none"},s);function rt(s,t){return t.length?h("ul",{class:s},t.map(e=>h("li",{},e))):null}function yt(s){return h("dl",{class:"\
facts"},s.filter(t=>t!==null).flatMap(([t,e])=>[h("dt",{},t),h("dd",{},e)]))}function Jt(s,t=()=>{}){let e=n=>{removeEventListener(
"pointermove",s),removeEventListener("pointerup",e),t(n)};addEventListener("pointermove",s),addEventListener("pointerup",
e)}function wt(s,t,e,n){let o={Enter:s.shiftKey?-1:1,ArrowDown:1,ArrowUp:-1}[s.key];!o||!e||(s.preventDefault(),n(t<0&&o<
0?e-1:(t+o+e)%e))}async function Yt(s){try{return await navigator.clipboard.writeText(s),!0}catch{let t=h("textarea",{"a\
ria-hidden":"true",class:"away"});t.value=s,document.body.append(t),t.select();let e=document.execCommand("copy");return t.
remove(),e}}function Ce(s){let{top:t,bottom:e}=s.getBoundingClientRect();(t<60||e>innerHeight)&&s.scrollIntoView({behavior:"\
instant",block:"start"})}var ts={light:["#2f52bd","#dfa01e","#cc3a32","#40b8ae","#388f45","#dc6aa5","#7a3fc4","#9cc6fa","#845c3e","#8d96a3","#ccd\
5e6"],dark:["#5579ee","#f7cc62","#ee5f54","#6fdccf","#5ab566","#e276b1","#8650dc","#a9ccff","#a5774f","#a0abb8","#47546e"]},
Ae=[0,0,1,1,0,2,2,2,3,3,0],Zt=6,Tn={1:[[0,4,2,2],[2,2,2,2],[4,0,2,2]],2:[[1,1,2,2],[4,4,2,2]],3:[[0,2,6,2]]},at=["circle",
"triangle","diamond","rect"],es=["solid","dashed","dotted",[9,3,2,3]],g={choice:"auto",system:globalThis.matchMedia?.("(\
prefers-color-scheme: dark)"),paper:!1,get name(){return this.paper?"light":this.choice==="auto"?this.system.matches?"da\
rk":"light":this.choice},color(s){let t=ts[this.name];return typeof s=="string"?this.value(s):t[s%t.length]},value(s){return getComputedStyle(
document.documentElement).getPropertyValue(`--${s}`).trim()},apply(){document.documentElement.dataset.theme=this.name,jn()}},
J=s=>typeof s=="string"?0:Ae[s%Ae.length],Tt=["#10151c","#ffffff"];function tt(s){let t=e=>{let[n,o]=[Qe(e),Qe(s)].sort(
(i,r)=>i-r);return(o+.05)/(n+.05)};return t(Tt[0])>=t(Tt[1])?Tt[0]:Tt[1]}function Qe(s){let[t,e,n]=[1,3,5].map(o=>{let i=parseInt(
s.slice(o,o+2),16)/255;return i<=.03928?i/12.92:((i+.055)/1.055)**2.4});return .2126*t+.7152*e+.0722*n}var ss=s=>tt(s)===
Tt[0]?"rgb(255 255 255 / 45%)":"rgb(0 0 0 / 28%)",Ee=new Map;function ns(s,t){let e=`${s} ${t}`;if(!Ee.has(e)){let n=h("\
canvas",{width:Zt,height:Zt}),o=n.getContext("2d");o.fillStyle=s,o.fillRect(0,0,Zt,Zt),o.fillStyle=ss(s);for(let i of Tn[t])
o.fillRect(...i);Ee.set(e,n)}return Ee.get(e)}function W(s){let t=g.color(s),e=J(s);return e?{image:ns(t,e),repeat:"repe\
at"}:t}function Qt(s,t){let e=g.color(t),n=J(t);return n?s.createPattern(ns(e,n),"repeat")??e:e}var Nn={1:s=>`repeating-\
linear-gradient(135deg, transparent 0 2px, ${s} 2px 4px)`,2:s=>`radial-gradient(${s} 1.2px, transparent 1.4px) 0 0 / 4px\
 4px`,3:s=>`repeating-linear-gradient(transparent 0 2px, ${s} 2px 4px)`},te=s=>typeof s=="string"?`var(--${s})`:`var(--p\
attern-${s}), var(--color-${s})`;function jn(){ts[g.name].forEach((s,t)=>{let e=Nn[Ae[t]]?.(ss(s))??"none";document.documentElement.
style.setProperty(`--color-${t}`,s),document.documentElement.style.setProperty(`--pattern-${t}`,e)})}var ee=(s,t)=>t.map((e,n)=>[e+s,1e3**n]),Nt={ns:[["ns",1],["µs",1e3],["ms",1e6],["s",1e9]],bytes:ee("B",["","k","M","G",
"T"]),flop:ee("FLOP",["","k","M","G","T","P"]),"flop/s":ee("FLOP/s",["","k","M","G","T","P"]),"bytes/s":ee("B/s",["","k",
"M","G","T"])};function se(s,t){let e=Nt[s],n=e[0];for(let o of e)Math.abs(t)>=o[1]&&(n=o);return n}var k=new Intl.NumberFormat(
"en-US",{maximumFractionDigits:0});function F(s){if(s===0)return"0";let t=Math.abs(s);if(t>=1e3)return k.format(s);if(t<
.001)return s.toExponential(1);let e=Math.max(0,2-Math.floor(Math.log10(t)));return s.toFixed(Math.min(e,6))}function ne(s){
let t=100*s;return t===0||t===100?String(t):t<.1&&t>0?"< 0.1":t.toFixed(1)}function u(s,t){if(s==null||Number.isNaN(s))return"\
–";if(t==="share")return`${ne(s)} %`;if(t==="count")return k.format(s);if(!Nt[t])return t?`${F(s)} ${t}`:F(s);let[e,n]=se(
t,s);return`${F(s/n)} ${e}`}function ot(s,t){return u(s,t).replace(/(\.\d*?)0+(?= |$)/,"$1").replace(/\.(?= |$)/,"")}function In(s){
let t=Math.abs(s);return t>=1e3?k.format(s):s.toFixed(t>=100?1:t>=10?2:3)}var Y=({unit:s})=>s==="text"||s==="name",Rn={share:"\
%","flop/byte":"FLOP/byte","×":"×"};function os(s,t,e){return typeof s=="boolean"?s?"yes":"":t==="share"?ne(s):t==="co\
unt"||t==="tokens"||s===0||t==="number"&&Number.isInteger(s)?k.format(s):!Nt[t]||e===1?F(s):Math.abs(s/e)<.005?u(s,t):In(
s/e)}function is(s,t){if(!Nt[s.unit])return[Rn[s.unit]??"",1];let e=t.map(n=>Math.abs(n[s.like??s.key]??0)).filter(n=>n>
0);return e.sort((n,o)=>n-o),se(s.unit,e.length?Math.sqrt(e[e.length>>1]*e[e.length-1]):0)}function rs(s,t){let e=t==="F\
LOP/s"?"flop/s":t;return Number.isInteger(s)&&!Nt[e]&&e!=="share"?`${k.format(s)} ${t}`:u(s,e)}var E=(s,t)=>`${k.format(
s)} ${t}${s===1?"":"s"}`,jt=s=>`${(s/1e6).toFixed(6)} ms`;function oe(s){let t=Math.round(Math.log10(s));return t>=4||t<=
-3?`10${[...String(t)].map(e=>e==="-"?"⁻":"⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(e)]).join("")}`:String(s)}var as=s=>`${s<
0?"−":"+"}${(100*Math.abs(s)).toFixed(2)} %`;var V=new Set;function ie(s){V.add({draw:()=>s.draw(),instance:{dispose(){},resize:()=>s.draw()}})}function B(s,t,e,n=()=>{}){
let o={node:s,instance:null,draw:i};s.style.height=`${t}px`,s.classList.add("chart"),V.add(o);function i(){o.instance?.dispose(),
o.instance=echarts.init(s,null,{renderer:"canvas"});let r=s.hasAttribute("aria-label");o.instance.setOption({...Un(),aria:{
enabled:!r},...e()}),n(o.instance)}return o}function Un(){return{animation:!1,textStyle:{fontFamily:g.value("sans"),color:g.
value("text")},backgroundColor:"transparent",tooltip:R()}}function R(s,t={}){return{confine:!0,backgroundColor:g.value("\
card"),borderColor:g.value("line"),borderWidth:1,padding:[7,10],textStyle:{color:g.value("text"),fontSize:12.5},transitionDuration:0,
extraCssText:"box-shadow:0 6px 20px rgb(0 0 0 / 18%);border-radius:8px;",formatter:s,...t}}function L({unit:s,axisLabel:t,
...e}={}){let n={lineStyle:{color:g.value("line")}},o={color:g.value("muted"),fontSize:12};return{axisLine:n,axisTick:{show:!1},
splitLine:n,minorSplitLine:{show:!1},axisLabel:{...o,formatter:s===void 0?void 0:r=>ot(r,s),...t},nameTextStyle:o,...e}}
function U(s,t){return h("div",{class:"tip"},h("b",{},s),t.filter(e=>e!==null).filter(([,e])=>e!=null).map(([e,n])=>h("d\
iv",{},h("span",{},e),h("span",{},n))))}function It(s){let t=h("span",{class:"swatch"});return t.style.background=te(s),
t}function N(s,{side:t=null,more:e=null}={}){let n=s.map(o=>h("span",{},It(o.color),o.name));return s.length?h("div",{class:"\
legend"},t?h("b",{},t):null,n,e):null}var re=new Map;function ls(s){re.clear();for(let[t,e]of Object.entries(s))re.set(t,e),t.length>400&&re.set(`${t.slice(0,
399)}…`,e)}function G(s,t=60){return s=K(s),s.length<=t?s:`${s.slice(0,Math.ceil(t*.7))}…${s.slice(s.length-Math.floor(
t*.3)+1)}`}function K(s){return re.get(s)??s.replace(/^(?:void |nn\.Module: )/,"")}var ae=s=>{let t=String(s??"");return t.
length>400?`${t.slice(0,399)}…`:t},Rt=s=>s.replace(/^nn\.Module: /,"").replace(/(?:_\d+| × \d+)$/,""),et=s=>s.map(Rt).
join(" / ");function le(s,t){let e=String(s??"");return e.toLowerCase().includes(t)||K(e).toLowerCase().includes(t)}var O={report:null,timeline:null,cameFrom:null,draw:async()=>{}};function lt(){if(!O.timeline)throw new Error("the page \
has no timeline");return O.timeline}function cs(){O.timeline=O.cameFrom=null,Ut.clear(),bt.clear()}var C=s=>document.getElementById(
s),Ut=new Map,bt=new Set;var hs={GPU:["breakdown","kernels","idle","launches"],CPU:["operators","source","flame"],Job:["job","axis","communicatio\
n"],More:["memory","serving","tables"]};function ds(){let s=({id:o,heading:i})=>h("a",{href:`#${o}`,"data-to":o,onclick:us},
i),t=[...document.querySelectorAll("section")].map(o=>({id:o.id,heading:o.querySelector("h2")?.textContent??""})),e=({id:o})=>Object.
keys(hs).find(i=>hs[i].includes(o))??o,n=new Map;for(let o of t)n.set(e(o),[...n.get(e(o))??[],o]);C("nav").replaceChildren(
...[...n].map(([o,i])=>i.length===1||O.report.difference?i.map(s):Bn(o,i.map(s))).flat())}function Bn(s,t){let e=h("div",
{class:"list"},t),n=h("details",{class:"group"},h("summary",{},s),e);return n.addEventListener("toggle",()=>{if(!n.open)
return;for(let r of C("nav").querySelectorAll("details[open]"))r!==n&&(r.open=!1);let{left:o,bottom:i}=n.getBoundingClientRect();
e.style.top=`${i}px`,e.style.left=`${Math.max(4,Math.min(o,innerWidth-e.offsetWidth-8))}px`}),n.addEventListener("keydow\
n",o=>{o.key==="Escape"&&(n.open=!1,n.firstChild.focus())}),n}function us(){for(let s of C("nav").querySelectorAll("deta\
ils[open]"))s.open=!1}function ps(){document.addEventListener("click",s=>{s.target.closest("nav details")||us()})}function ms(s){
for(let t of C("nav").querySelectorAll("a"))t.classList.toggle("here",t.dataset.to===s);for(let t of C("nav").querySelectorAll(
"details"))t.firstChild.classList.toggle("here",!!t.querySelector("a.here"))}async function fs(s){let t=Uint8Array.from(atob(s),n=>n.charCodeAt(0)),e=new Blob([t]).stream().pipeThrough(new DecompressionStream(
"deflate"));return new Uint8Array(await new Response(e).arrayBuffer())}async function vt(s){return JSON.parse(new TextDecoder().
decode(await fs(s)))}async function Bt(s,t,e){let n=await fs(s),o={},i=0;for(let{name:r,size:l,delta:a}of t){let c=Gn(n.
subarray(i,i+=e*l),e,l);if(a)for(let d=1;d<e;d++)c[d]+=c[d-1];o[r]=c}return o}function Gn(s,t,e){let n=new(e>4?Float64Array:
Int32Array)(t);for(let o=0;o<t;o++){let i=s[(e-1)*t+o]<<24>>24;for(let r=e-2;r>=0;r--)i=i*256+s[r*t+o];n[o]=i}return n}function b(s,t,...e){let n=s?h("h3",{},s,X(t)):null;return h("div",{class:"card"},n,e)}function it(s,...t){let e=t.filter(
n=>n!==null);return e.forEach((n,o)=>n.style.setProperty("--span",e.length>1?String(s[o]):"12")),h("div",{class:"columns"},
e)}function _(s,t,e,...n){return h("section",{id:s,"aria-labelledby":`${s}-heading`},h("h2",{id:`${s}-heading`},t),e?h("\
p",{class:"lead"},e):null,n)}function I(s,t,e){let[n,...o]=t.split(" ");return h("div",{class:"tile"},h("div",{class:"la\
bel"},s),h("div",{class:"value"},n,X(o.join(" "))),h("div",{class:"note"},e??""))}function D(s,t){let e=s.left_out[t];return e?
`${E(e,"more row")} not shown`:null}function ce(s,t){return t.filter((e,n)=>s.some(o=>o.kind===n))}var zn={ranks:[["name","Rank","text","Rank."],["file","File","name","File with this rank's trace."],["span","Duration","\
ns","Duration of the trace."],["latency","Mean step","ns","Mean duration of a step."],["busy","GPU busy","share","Share \
of the trace during which the rank's GPUs are busy."],["computing","Computing","ns","Time during which a compute kernel \
runs."],["communication","Communicating","ns","Time during which a communication kernel runs."],["exposed","Exposed","ns",
"Communication time during which no compute kernel runs."],["waiting","Above minimum","ns","Communication time beyond th\
e minimum over all ranks, probably spent waiting for other ranks."],["idle","Idle","ns","Time during which no GPU event \
runs."],["events","GPU events","count","Number of GPU events."],["linked","Linked","share","Share of operators that are \
linked with the Execution Trace."]],collectives:[["start","Start","ns","Start on the first rank."],["kind","Collective",
"text","Kind of the collective."],["group","Group","name","Process group."],["bytes","Message","bytes","Size of the mess\
age."],["length","Duration","ns","Time from the start on the first rank to the end on the last rank."],["waited","Waited",
"ns","Total time that ranks waited for the last rank to arrive."],["longest","Longest wait","ns","Longest wait of any ra\
nk."],["last","Last to arrive","text","Rank that arrived last."]],waits:[["label","Rank","text","Rank."],["collectives",
"Collectives","count","Number of collectives in which ranks wait for each other."],["last","Last to arrive","count","Num\
ber of collectives at which this rank arrived last."],["caused","Others waited for it","ns","Total time that other ranks\
 waited for this rank."],["waited","Waited itself","ns","Total time that this rank waited."],["offset","Clock ahead","ns",
"Clock offset relative to the lowest-numbered rank; the page corrects for it."],["spread","Spread","ns","Median deviatio\
n of individual collectives from the clock offset."]],span:[["name","Name","name","Name."],["kind","Kind","text","Kind."],
["count","Count","count","Number of events."],["total","Time","ns","Time within the span, including nested calls."],["sh\
are","Share","share","Share of the span; above 100 % if events overlap."]]},Fn={std:"mean",t3:"t2"},gs={flops_per_second:"\
Achieved",operator_flops_per_second:"Whole operator",flops_share:"Of peak",bytes_per_second:"Bandwidth",most_bytes_per_second:"\
Bandwidth at most",bytes_share:"Of bandwidth",bound:"Bound by",ops:"Operators",flops:"FLOPs",bytes:"Size",allocated_bytes:"\
Allocated",algorithm_bandwidth:"Bandwidth",bus_bandwidth:"Bus bandwidth",self_ns:"CPU self",host:"CPU call",host_wait_ns:"\
Launched late",kernel_wait_ns:"Between kernels",other_ns:"Other waits",before_first_ns:"Before first",after_last_ns:"Aft\
er last","idle_causes longest":"Longest queue","idle_causes mean":"Mean queue",full_ns:"Queue full",median_call_ns:"Medi\
an call",median_delay_ns:"Median delay",max_delay_ns:"Longest delay",short:"Shorter than call",long_calls:"Calls > 50 µs",
long_delays:"Delays > 100 µs",window_ns:"Duration",busy_share_of_gpu_span:"Busy, first to last",overlapped_ns:"Overlapp\
ing",communication_ns:"Communication",exposed_communication_ns:"Exposed",host_before_ns:"CPU before",ns_per_output_token:"\
Per output token",ns_per_prefill_token:"Per prefill token",min_ns:"Shortest",a_communication_ns:"A communication",b_communication_ns:"\
B communication",a_device_ns:"A GPU",b_device_ns:"B GPU",a_host_ns:"A CPU",b_host_ns:"B CPU",a_self_ns:"A CPU self",b_self_ns:"\
B CPU self",change_self_ns:"B−A CPU self"};function ys(s){let[t]=s.split(/[ -]/),e=zn[t];return e?e.map(([n,o,i,r])=>({
key:n,title:o,unit:i,hint:r,like:Fn[n]})):O.report.columns[t].map(n=>({...n,title:gs[`${t} ${n.key}`]??gs[n.key]??n.title.
replace(/^host\b/i,"CPU")}))}function Dn(s){let e=s.split(/(?<=[;\t\r\n])/).map(n=>/^[\s\p{C}\p{Z}]*[=+\-@|＝＋－＠｜﹢﹣﹦﹫−]/u.test(n)?
`'${n}`:n).join("");return/^[\t\r\n]/.test(e)?`'${e}`:e}function ws(s,t){let e=o=>{let i=typeof o=="string"?Dn(o):String(
o??"");return/[",\r\n]/.test(i)?`"${i.replaceAll('"','""')}"`:i};return[s.map(o=>o.key),...t.map(o=>s.map(i=>o[i.key]))].
map(o=>`${o.map(e).join(",")}
`).join("")}var Wn=400;async function Gt(s,{gpu:t,device:e,stream:n,name:o,codes:i,op:r,has:l}){let{tiles:a,details:c,step:d,data:p}=s,
f=await c.texts(),m=i??(o===void 0?null:bs(f.names,o)),y=r?bs(f.names,r):null,S=[];for(let w=0;w<a.first.length;w++){let v=p.
lanes[a.tiles.lane[w]];if(t!==void 0&&v.gpu!==t||n!==void 0&&v.stream!==n||e!==void 0&&v.device!==e)continue;let M=a.decoded.
get(w)??await a.decode(w),A=l||d?(await c.tile(w)).columns:{};for(let P=0;P<M.count;P++)m&&!m.has(M.name[P])||y&&!y.has(
M.op[P])||d&&A.step[P]!==d.number||l&&!l(A,P,f,M.name[P])||S.push({number:M.first+P,ts:M.ts[P],dur:M.dur[P]})}return S.sort(
(w,v)=>w.ts-v.ts||w.number-v.number)}var bs=(s,t)=>new Set(s.flatMap((e,n)=>e===t?[n]:[]));async function Le(s,t,e){let n=t.
slice().sort((r,l)=>l.dur-r.dur||r.ts-l.ts);if(!e)return n[0]?.number??null;let{details:o}=s,i=await o.texts();for(let{number:r}of n.
slice(0,Wn))if(await e(await o.of(r),i))return r;return null}function vs(s){let t=null,e=s[0]?.ts;for(let{ts:n,dur:o}of s)
n-e>(t?t.to-t.from:0)&&(t={from:e,to:n}),e=Math.max(e,n+o);return t}var kt=class{constructor(t,e,n=-1){this.timeline=t,this.
numbers=e,this.at=n}get text(){return this.numbers.length?`${k.format(this.at+1)} of ${k.format(this.numbers.length)}`:"\
none here"}async step(t){let e=this.numbers.length;e&&(this.at=this.at<0&&t<0?e-1:(this.at+t+e)%e,await this.timeline.inspector?.
select(this.numbers[this.at],{reveal:!0}))}};async function xt(s,t=null){let{timeline:e}=O;if(!e)return;if(O.cameFrom=t,s.from!==void 0||!e.inspector)return Pe(s);let n=[],
o=s.event;if(o===void 0){let i=await Gt(e,s);if(!i.length&&s.orElse?.from!==void 0)return Pe(s.orElse);!i.length&&s.orElse&&
(i=await Gt(e,s.orElse));let r=s.gap?vs(i):null;if(r)return Pe(r);n=i.map(l=>l.number),o=await Le(e,i,s.fits)??await Le(
e,i)}if(o==null)return e.picked.replaceChildren("This row has no event in the timeline.");(s.fits||!n.length)&&(n=s.events??
[o]),e.hits=new kt(e,n,n.indexOf(o)),Ce(e.node),await e.inspector.select(o,{reveal:!0}),e.canvas.focus({preventScroll:!0}),
e.node.dataset.jumped=o}function Pe({from:s,to:t,name:e}){let n=lt(),{names:o,found:i}=n.data,r=s===void 0?i.find(a=>o[a.
name]===e):null;if(r&&([s,t]=[r.ts,r.ts+r.dur]),s===void 0||t===void 0)return;Ce(n.node);let l=Math.max((t-s)*.15,20);n.
show(s-l,t+l),n.inspector?.clear(),n.span?.set(s,t),n.canvas.focus({preventScroll:!0}),n.node.dataset.jumped=`${s} ${t}`}
function he(){let{cameFrom:s}=O;s?.isConnected&&(s.scrollIntoView({behavior:"instant",block:"center"}),s.focus({preventScroll:!0}))}
function ks(s,t){let e=O.timeline?.names;if(!e)return null;let n=s.find(o=>Y(o)&&e.has(ae(t[o.key])));return n?{name:t[n.
key]}:null}var Kn=(s,{place:t,file:e,function:n})=>s===t||s.startsWith(`${t} (`)||s.endsWith(`(${t})`)||n==="<module>"&&
s===`module level (${e})`,Hn={kernel:["kernels",s=>t=>(t.members??[t.kernel]).includes(s)],call:["operators",s=>t=>t.op===
s],operator:["operators",s=>t=>t.op===s],source:["sources",s=>t=>Kn(s,t)],modules:["modules",s=>t=>t.path===et(s)],module:[
"modules",s=>t=>t.path===et(s.split(" / "))],phase:["phases",s=>t=>t.phase===s]};function Te(s,t,e=null){let[n,o]=Hn[s]??
[],i=n?Ut.get(n):void 0,r=o?.(t);if(!i||!r||!i.has(r))return null;let l=e??(Array.isArray(t)?t.join(" / "):String(t)),a=`\
Go to its row in the table of ${n}`;return h("button",{type:"button",class:e?null:"to-row",title:a,"data-row":s,onclick:()=>i.
find(r)},l)}var Ne=100,qn=8;function $(s,t,e,n,o){return n.length?b(s,t,H(e,n,o)):null}var H=(s,t,e)=>new je(s,t,e).node;function Xn({
key:s,unit:t,several:e},n){return e?new Set(n.map(o=>o[s])).size>1:n.some(o=>o[s]||t==="number"&&o[s]===0)}var je=class{constructor(t,e,{
columns:n,sort:o=null,filter:i=!0,jump:r=null,click:l=null}={}){this.rows=e,this.name=t,this.click=l,this.columns=(n??ys(
t)).filter(a=>Xn(a,e)),this.jump=r??(a=>ks(this.columns,a)),this.units=Object.fromEntries(this.columns.map(a=>[a.key,is(
a,e)])),this.sortKey=o??this.columns.find(a=>!Y(a))?.key??"",this.isDescending=!this.columns.some(a=>a.key===this.sortKey&&
Y(a)),this.text="",this.most=Ne,this.at=-1,this.found=e,this.build(i&&e.length>qn),t&&!t.startsWith("span-")&&(Ut.set(t,
{find:a=>this.find(a),has:a=>e.some(a)}),e.length>Ne&&bt.add(()=>this.draw())),this.draw()}build(t){let e=this.name.replaceAll(
"_"," ");this.headings=this.columns.map(i=>this.heading(i)),this.body=h("tbody"),this.said=h("span",{class:"said",role:"\
status"}),this.more=h("button",{type:"button",onclick:()=>this.showAll()},"Show all"),this.input=h("input",{type:"search",
placeholder:"Filter rows…","aria-label":`Filter ${this.name}`,oninput:()=>this.filter(this.input.value),onkeydown:i=>wt(
i,this.at,this.found.length,r=>this.go(r))});let n="Copy the rows shown, with full names and exact numbers",o=h("button",
{type:"button",class:"push",title:n,onclick:()=>this.copy()},"Copy as CSV");this.shown=h("table",{"data-table":this.name,
"aria-label":e},h("thead",{},h("tr",{},this.headings)),this.body),this.body.addEventListener("click",i=>{let r=i.target.
closest("tr");r&&getSelection()?.isCollapsed&&this.act(r.sectionRowIndex)}),this.body.addEventListener("keydown",i=>this.
key(i)),this.node=h("div",{},h("div",{class:t?"tools":"tools alone"},t?[this.input,this.said,this.more]:this.said,o),h("\
div",{class:"table",tabindex:0,role:"region","aria-label":`${e} table`},this.shown))}heading(t){let e=()=>{this.isDescending=
this.sortKey===t.key?!this.isDescending:!Y(t),this.sortKey=t.key,this.at=-1,this.draw()},[n]=this.units[t.key];return h(
"th",{class:Y(t)?"text":null,scope:"col"},h("button",{type:"button",title:t.hint,onclick:e},t.title.replace(/^[a-z]/,o=>o.
toUpperCase()),X(n)))}draw(){let{columns:t,rows:e,sortKey:n,text:o}=this,i=t.filter(Y),r=g.paper?1/0:this.most;this.found=
o?e.filter(l=>i.some(({key:a})=>le(l[a],o))):e.slice(),n&&this.found.sort((l,a)=>Jn(l[n],a[n])*(this.isDescending?-1:1)),
t.forEach(({key:l},a)=>{l===n?this.headings?.[a].setAttribute("aria-sort",this.isDescending?"descending":"ascending"):this.
headings?.[a].removeAttribute("aria-sort")}),this.body.replaceChildren(...this.found.slice(0,r).map((l,a)=>this.row(l,a))),
this.more.hidden=this.found.length<=r,this.said.textContent=this.found.length<e.length?`${k.format(this.found.length)} o\
f ${k.format(e.length)} rows`:this.more.hidden?"":`first ${Ne} of ${k.format(e.length)} rows`}row(t,e){let n={"aria-curr\
ent":e===this.at?"true":null,class:this.click||O.timeline&&this.jump(t)?"go":null,tabindex:e===Math.max(0,this.at)?0:-1};
return h("tr",n,this.columns.map(o=>Vn(o,t,this.units[o.key])))}filter(t){this.text=t.toLowerCase(),this.at=-1,this.draw()}showAll(){
this.most=1/0,this.draw()}async copy(){let t=k.format(this.found.length);this.said.textContent=await Yt(ws(this.columns,
this.found))?`${t} rows copied`:"copying is not allowed"}go(t,{focus:e=!1}={}){this.at=t,t>=this.most&&(this.most=1/0),this.
draw();let n=this.body.children[t];n.scrollIntoView({block:"nearest"}),e&&n.focus({preventScroll:!0}),this.said.textContent=
`row ${k.format(t+1)} of ${k.format(this.found.length)}`}find(t){return this.rows.some(t)?(this.input.value=this.text="",
this.draw(),this.shown.scrollIntoView({behavior:"instant",block:"center"}),this.go(this.found.findIndex(t),{focus:!0}),this.
body.children[this.at].scrollIntoView({behavior:"instant",block:"center"}),!0):!1}act(t){let e=this.found[t];if(this.click)
return this.click(e);let n=O.timeline&&this.jump(e);n&&xt(n,this.body.children[t])}key(t){let e=t.target.sectionRowIndex;
if(e===void 0)return;if(t.key==="Enter")return this.act(e);let n=Math.min(this.found.length,this.most),i={ArrowDown:e+1,
ArrowUp:e-1,Home:0,End:n-1}[t.key];i!==void 0&&(t.preventDefault(),i>=0&&i<n&&this.go(i,{focus:!0}))}};function Vn(s,t,[
,e]){let n=t[s.key];if(n==null)return h("td",{class:Y(s)?"text nothing":"nothing"},"–");if(Y(s)){let i=s.unit==="name"?
h("code",{},K(String(n))):String(n),r=s.indent?`${(t[s.indent]??0)*14}px`:null,l=s.front?h("bdi",{dir:"ltr"},i):i;return h(
"td",{class:s.front?"text front":"text",title:n,"--indent":r},l)}let o=s.unit==="share"?{class:"share","--share":`${Math.
min(100,100*n)}%`}:{};return h("td",o,os(n,s.unit,e))}function Jn(s,t){return s===t?0:s==null?-1:t==null?1:typeof s=="st\
ring"?s.localeCompare(t,"en",{numeric:!0}):s-t}var Yn=64,q=class{constructor(t,e,n){this.packed=t,this.tiles=e,this.lanes=n,this.kept=new Map,this.unpacked=null}texts(){
return this.unpacked??=vt(this.packed.texts)}async of(t){let e=this.tiles.tileOf(t),{columns:n,sources:o,targets:i}=await this.
tile(e),r=t-this.tiles.first[e],l=await this.tiles.event(t);for(let a in n)l[a]=n[a][r];return l.gpu=this.lanes[l.lane].
gpu,l.sources=this.related(o,r),l.targets=this.related(i,r),l}tile(t){let e=this.kept.get(t);return e||(e=this.decode(t),
this.kept.set(t,e),this.kept.size>Yn&&this.kept.delete([...this.kept.keys()][0])),e}async decode(t){let{packed:e}=this,n=this.
lanes[this.tiles.tiles.lane[t]].gpu?e.gpu:e.cpu,o=a=>Bt(e[a].data[t],e.links,e[a].count[t]),[i,r,l]=await Promise.all([Bt(
e.data[t],n,this.tiles.tiles.count[t]),o("sources"),o("targets")]);return{columns:i,sources:r,targets:l}}related({kind:t,
at:e,other:n},o){let i=[];for(let r=0;r<e.length;r++)e[r]===o&&i.push({kind:this.packed.relations[t[r]],other:n[r]});return i}static first(t,e){
return t.find(n=>n.kind===e&&n.other>=0)?.other??null}};var Re={caller:["Called by","Calls"],operator:["Launching operator","GPU work launched"],launch:["Launch call","Launches"],
forward:["Forward operator","Backward operator"],data:["Reads data from","Data read by"],thread:["Previous operator on t\
he thread","Next operator on the thread"],stream:["Previous on the stream","Next on the stream"],event:["Waits for (even\
t)","Awaited by (event)"],sync:["Waits for the GPU (sync)","Awaited by the CPU (sync)"],thread_handoff:["Handed over by \
thread","Hands over to thread"],comm:["Previous collective of the group","Next collective of the group"],graph:["Graph d\
ependency on","Graph dependency of"]},x=(s,t,e,n)=>({key:s,label:t,value:e,text:n??String(e)}),$s=s=>s.filter(t=>t!==null).
filter(t=>(t.value??-1)!==-1),ct=(s,t,e,n)=>x(s,t,e,u(e,n)),Ft=(s,t,e)=>ct(s,t,e,"ns");function Ie(s,t){return s.map((e,n)=>`\
[${e.join(", ")}]${t[n]?` ${t[n]}`:""}`).join(", ")}function Ss(s){if(!s)return[];let{shapes:t,dtypes:e,outputs:n,output_dtypes:o}=s;
return[t.length?x("shapes","Inputs",t,Ie(t,e)):null,n?.length?x("outputs","Outputs",n,Ie(n,o)):null]}function _t(s,t){let e=[];
for(let n=t;n>0;n=s.path_parents[n])e.unshift(s.path_names[n]);return e}function Ms(s,t,e){let n=t.modules?.[s.module],o=t.
stacks,i=o?.lines[o.line[s.entry]],r=[];for(let l=o&&s.entry>=0?s.entry:-1;l>=0;l=o.above[l])r.unshift(o.names[o.name[l]]);
return[s.phase>0?x("phase","Phase",t.phases[s.phase]):null,n&&!e.length?x("module","Module",n):null,i?x("source","Source\
 line",i):null,r.length?x("stack","Python stack",r,r.join(" › ")):null]}function Os(s,t,e){let n=s.links[t],o=s.evidence[n];
return o?[x("link",`Link to the Execution Trace${e}`,n),o.length?x("evidence","Evidence",o,o.join("; ")):null]:[]}function Cs(s,t){
let e=_t(t,s.path);return $s([Ft("self_ns","Self time",s.self_ns),s.device_events>0?ct("device_events","GPU events",s.device_events,
"count"):null,s.device_ns>0?Ft("device_ns","GPU time",s.device_ns):null,...Ss(t.signatures[s.signature]),...As(t.generated[s.
generated]),e.length?x("modules","Modules",e,e.join(" / ")):null,...Ms(s,t,e),x("correlation","Correlation",s.correlation),
x("seq","Sequence number",s.seq),x("id","Node id",s.id),x("kineto_event","Kineto event",s.kineto_event),s.step>=0?x("ste\
p","Step",t.steps[s.step]):null,...Os(t,s.link,"")])}var Zn="above the peak: the peak or the FLOPs are wrong for this ke\
rnel",xs=(s,t,e)=>x(s,t,e,e>1?`${u(e,"share")} (${Zn})`:u(e,"share")),_s=s=>Array.isArray(s)&&s.length&&s.every(t=>Number.
isInteger(t)&&t>0)?s.join(" × "):null,zt=(s,t=1/0)=>typeof s=="number"&&s>=0&&s<=t,Qn={grid:["Grid",_s],block:["Block",
_s],context:["Context",String],"registers per thread":["Registers per thread",s=>zt(s,1024)?u(s,"count"):null],"shared m\
emory":["Shared memory per block",s=>zt(s,2**24)?u(s,"bytes"):null],"blocks per SM":["Blocks per SM (whole launch)",s=>zt(
s)?F(s):null],"warps per SM":["Warps per SM (whole launch)",s=>zt(s)?F(s):null],"est. achieved occupancy %":["Occupancy,\
 estimated",s=>zt(s,100)?s?`${F(s)} %`:"< 0.5 %":null]},to={collective:["Collective"],dtype:["Message dtype"],in_nelems:[
"Elements in","count"],out_nelems:["Elements out","count"],bytes:["Communicated","bytes"],group_size:["Group size","coun\
t"],pg_name:["Group"],pg_desc:["Group description"],pg_ranks:["Ranks"],src_rank:["From rank"],dst_rank:["To rank"],seq:[
"Sequence in the group"],in_split:["Elements to each rank"],out_split:["Elements from each rank"],pg_first_rank:["First \
rank of the group"],inferred_messages:["Messages sent together (inferred)"]};function eo(s,t,e){return s==="inferred_mes\
sages"?t.map(n=>`${n.collective} ${n.dst_rank??n.src_rank??""}`.trim()).join(", "):Array.isArray(t)?t.join(", "):e?u(t,e):
String(t)}function so(s){return Object.entries(s).map(([t,e])=>{let[n,o]=to[t],i=e===null?"":eo(t,e,o);return e===null||
i===""?null:x(`comm.${t}`,n,e,i)})}function no(s){return Object.entries(s).map(([t,e])=>{let[n,o]=Qn[t],i=e===null?null:
o(e);return i===null?null:x(t,n,e,i)})}function oo(s,t){if(!t?.memory_gb_s||s.bytes<0)return!1;let e=t.cache_bytes??0,n=s.
dur*t.memory_gb_s,o=e>0&&s.dur>0&&s.bytes>n&&s.bytes-2*e<=n;return s.bytes>e&&!o}function Es(s,t,e,n,o){let i=o[e.device??
-1],r=t.dtypes[s.dtype],l=s.flops>=0&&s.dur?s.flops/s.dur*1e9:null,a=s.bytes>=0&&s.dur?s.bytes/s.dur*1e9:null,c=i?.peaks?.[r]??
null,d=oo(s,i)?i.memory_gb_s*1e9:null,p=s.most_bytes>s.bytes,f=n?_t(t,n.path):[];return $s([x("category","Category",t.categories[s.
category]),n?x("operator","Operator",n.full):null,...n?Ss(t.signatures[n.signature]):[],f.length?x("modules","Modules",f,
f.join(" / ")):null,...Ms(s,t,f),Ft("delay","Launch delay",s.delay),x("device","Device",e.device),x("stream","Stream",e.
stream),...As(t.generated[s.generated]),...no(t.configs[s.config]??{}),s.flops>=0?ct("flops","FLOPs",s.flops,"flop"):null,
l===null?null:ct("flops_per_second","Achieved",l,"flop/s"),l===null||!c?null:xs("flops_share",`Share of the ${r} peak`,l/
c),s.bytes>=0?ct("bytes",p?"Bytes, at least":"Bytes",s.bytes,"bytes"):null,p?ct("most_bytes","Bytes, at most",s.most_bytes,
"bytes"):null,a===null?null:ct("bytes_per_second","Bandwidth",a,"bytes/s"),a===null||!d?null:xs("bytes_share","Share of \
the bandwidth",a/d),...so(t.comms[s.comm]??{}),x("correlation","Correlation",s.correlation),x("id","Node id",s.id),x("ki\
neto_event","Kineto event",s.kineto_event),s.step>=0?x("step","Step",t.steps[s.step]):null,s.reason>0?x("reason","Not at\
tached",t.reasons[s.reason]):null,s.repeated>=0?x("repeated","Operator, inferred from a later step",t.repeated[s.repeated]):
null,...Os(t,s.link," (operator)"),...io(s,t)])}function As(s){if(!s)return[];let{region:t,backward:e,handle:n,nodes:o=[],
lines:i}=s,r=t?`${t}${e?", backward":""}${n===void 0?"":`, call ${n}`}`:"";return[x("generated","Compiled as",s.name),r?
x("region","Compiled region",r):null,o.length?x("nodes",o.length>1?"Fused from":"Compiled from",o,o.join(", ")):null,i.length>
1?x("lines","Source lines (fused)",i,i.join("; ")):null,s.kernel_file?x("kernel_file","Kernel file",s.kernel_file):null,
s.kernel_hash?x("kernel_hash","Kernel hash",s.kernel_hash):null,s.kernel_kwargs?x("kernel_kwargs","Kernel constants",s.kernel_kwargs):
null]}function io(s,t){let e=t.captured[s.captured];if(!e)return[];let n=t.replays[s.replay],o=t.graphs[n?.graph],i=Ie(e.
shapes,e.dtypes);return[x("captured_by","Captured by",e.name),i?x("captured_shapes","Captured inputs",e.shapes,i):null,e.
modules.length?x("captured_modules","Captured in",e.modules,e.modules.join(" / ")):null,x("captured_link","Link to the c\
apture",t.links[s.captured_link]),n?.evidence.length?x("captured_evidence","Evidence for the graph",n.evidence,n.evidence.
join(", ")):null,n?.candidates>1?x("candidates","Graphs that fit equally well",n.candidates):null,o?x("graph","Graph",o.
index,ro(o)):null]}function ro({index:s,file:t,batch_size:e}){return`${s} of ${t}${e===null?"":`, batch size ${e}`}`}function ao(s,t){let{stacks:e}=s;return t>=0&&e?.places[e.line[t]]||""}var Ls=s=>s?.shapes.map(t=>`[${t.join(",")}]`).join(
",")??"";async function de(s){let t=s.gpu?q.first(s.sources,"operator"):s.number;return t===null?null:lt().details.of(t)}
async function Ps(s){let{data:t,details:e}=lt(),n=s,o=s;for(;o;){let i=q.first(o.sources,"caller");o=i===null?null:await e.
of(i),o&&t.kinds[o.kind].name==="Operator"&&(n=o)}return n}var $t=(s,t)=>({gpu:t,has:(e,n,o)=>ao(o,e.entry[n])===s});function Ts(s){
let t=/ × \d+/.test(s)?et(s.split(" / ")):null;return{has:({module:e},n,o)=>{let i=o.modules[e[n]]??"";return t===null?
i===s:et(i.split(" / "))===t}}}function ht(s,t){let e=new Set(s);return{gpu:t,has:({id:n},o)=>e.has(n[o])}}function Ns(s,t){let{tree:e,analysis:n}=t;if(!e.total_ns)return _("breakdown","GPU time",null,b(null,null,gt("The trace \
has no GPU events.")));let o=h("div"),i=s.gpu_kinds;return B(o,460,()=>({tooltip:R(r=>{let l=r.treePathInfo.slice(1).map(
c=>c.name),a=r.data.of;return a?U(G(a.name,200),[l.length>1?["in",G(l.slice(0,-1).join(" › "),140)]:null,a.kind===void 0?
null:[a.level,i[a.kind].name],["time",u(a.total_ns,"ns")],["share",u(a.total_ns/e.total_ns,"share")],["GPU events",u(a.count,
"count")]]):null}),series:[{type:"treemap",data:(e.children??[]).map(r=>js(r,i)),left:0,right:0,top:30,bottom:0,leafDepth:co(
e),roam:!1,nodeClick:"zoomToNode",drillDownIcon:"",animationDuration:g.paper?0:200,visibleMin:20,breadcrumb:{top:0,left:0,
height:22,itemStyle:{color:g.value("sunk"),borderColor:g.value("line"),textStyle:{color:g.value("text")}},emphasis:{itemStyle:{
color:g.value("accent-soft")}}},name:"All GPU time",label:{fontSize:12,padding:[3,5],lineHeight:15,overflow:"truncate",formatter:r=>`${G(
r.name,70)}
${u(r.value,"ns")}`},upperLabel:{show:!0,height:20,color:g.value("text"),fontSize:12,padding:[0,6],formatter:r=>`${G(r.name,
80)}  ${u(r.value/e.total_ns,"share")}`},itemStyle:{gapWidth:2,borderWidth:0,borderColor:g.value("card")},levels:[{itemStyle:{
gapWidth:3},upperLabel:{show:!1}},...[1,2,3,4,5,6,7,8].map(()=>({itemStyle:{gapWidth:2,borderWidth:2,borderColor:g.value(
"sunk")}}))]}]})),_("breakdown","GPU time","By module, operator and kernel. Click to zoom in; use the path above to go b\
ack.",b(null,null,N(ce(Ue(e),i)),o),$("By operator and kernel",D(t,"breakdown"),"breakdown",n.breakdown,{sort:"total_ns",
jump:lo}))}var lo=({device:s,stream:t,kernel:e,op:n,repeated:o,modules:i,shapes:r})=>({gpu:!0,device:s,stream:t,name:e,op:o?
"":n,fits:i||r?async(l,a)=>{let c=await de(l),d=c&&await Ps(c);if(!d||Ls(a.signatures[d.signature])!==r)return!1;let p=q.
first(d.sources,"forward");return[d,p===null?null:await lt().details.of(p)].some(m=>m&&_t(a,m.path).join(" / ")===i)}:null});
function co(s){let t=s.children??[],e=1;for(;e<6&&t.length<24;)t=t.flatMap(n=>n.children??[n]),e+=1;return e}function Ue(s){
return s.children?s.children.flatMap(Ue):[s]}function js(s,t){let e=s.children?.map(r=>js(r,t)),n=new Map;for(let r of Ue(
s))n.set(r.kind,(n.get(r.kind)??0)+r.total_ns);let o=[...n].reduce((r,l)=>l[1]>r[1]?l:r)[0],i=o===void 0?"faint":t[o].color;
return{name:s.name,value:s.total_ns,of:s,children:e,itemStyle:{color:W(i)},label:{color:tt(g.color(i))}}}function Is(s,t){let e=t.analysis.communication;if(!e.length)return null;let n=e.filter(l=>l.bytes&&l.algorithm_bandwidth),
o=h("div"),i=[...new Set(n.map(l=>l.collective||"unnamed"))],r=Math.max(...n.map(l=>l.total_ns));return n.length&&B(o,270,
()=>({grid:{left:80,right:16,top:14,bottom:44},tooltip:R(l=>{let a=l.data.row;return U(a.collective||"unnamed",[["messag\
e",u(a.bytes,"bytes")],["dtype",a.dtype||"–"],["group",a.group||"–"],["ranks",a.group_size?String(a.group_size):"–"],
["kernels",u(a.count,"count")],["mean duration",u(a.mean_ns,"ns")],["algorithm bandwidth",u(a.algorithm_bandwidth,"bytes\
/s")],["bus bandwidth",u(a.bus_bandwidth,"bytes/s")]])}),xAxis:L({type:"log",name:"message size",nameLocation:"middle",nameGap:28,
unit:"bytes"}),yAxis:L({type:"log",unit:"bytes/s"}),series:i.map((l,a)=>({name:l,type:"scatter",symbol:at[J(a)],itemStyle:{
color:g.color(a),opacity:.8,borderColor:g.value("card")},symbolSize:(c,d)=>8+20*Math.sqrt(d.data.row.total_ns/r),data:n.
filter(c=>(c.collective||"unnamed")===l).map(c=>({value:[c.bytes,c.bus_bandwidth??c.algorithm_bandwidth],row:c}))}))})),
_("communication","Communication","Durations of communication kernels include waits for other ranks, so the bandwidths d\
escribe the job, not the links.",n.length?b("Bus bandwidth by message size","algorithm bandwidth if the number of ranks \
is unknown",N(i.map((l,a)=>({name:l,color:a}))),o):null,$("Collectives",D(t,"communication"),"communication",e,{sort:"to\
tal_ns",jump:ho}))}var ho=({collective:s,dtype:t,bytes:e})=>({gpu:!0,has:(n,o,i)=>{let r=i.comms[n.comm[o]];return!!r&&(r.
collective??"")===s&&(r.dtype??"").toLowerCase()===t&&uo(r)===e},orElse:{gpu:!0,has:(n,o)=>n.comm[o]>=0}});function uo({
bytes:s,in_nelems:t,out_nelems:e}){let n=t||e;return s===null||!n?s:Math.floor(s/n)*Math.max(t??0,e??0)}function Be(s){let t=s.steps??[];C("step-pick").hidden=!t.length,C("step").replaceChildren(h("option",{value:""},"all"),
...t.map((e,n)=>e.data?h("option",{value:n},e.name):h("option",{value:n,disabled:!0,title:"Not on this page; use etplus \
report --steps"},e.name)))}var Dt=({step:s,span_ns:t})=>s?{min:s.from,max:s.to}:{min:0,max:t};function st(s){let{report:t}=O,
e=t.ranks[C("rank").value].steps?.[C("step").value]?.number;C("rank").value=s,Be(t.ranks[s]);let n=t.ranks[s].steps?.findIndex(
o=>o.number===e&&o.data)??-1;return C("step").value=n<0?"":n,O.draw(s,n<0?null:n)}async function Rs(s,{number:t}){let e=s.
ranks.map(async n=>{let o=n.steps?.find(i=>i.number===t&&i.data);return o?{...n,...o.unpacked??=await vt(o.data??""),step:o}:
n});return{...s,ranks:await Promise.all(e)}}var po={confirmed:"the trace shows the problem and its cost",inferred:"the trace shows the symptom; this is its usual ca\
use",predicted:"the trace shows a sign that often accompanies the problem"};function ue(s,t){let{findings:e}=s;if(!e)return null;
let n=e.found.filter(({where:c})=>!t.step||!c.step||c.step===t.step.name),o=n.filter(c=>s.difference||c.gain||c.cost_ns!==
null),i=n.filter(c=>!o.includes(c)).map(c=>c.title),r=o.slice(0,e.first||o.length),l=o.slice(r.length),a=l.length?h("det\
ails",{class:"more"},h("summary",{},`${E(l.length,"smaller problem")}`),l.map((c,d)=>Us(s,c,r.length+d))):null;return _(
"findings","Findings",mo(e,o),r.map((c,d)=>Us(s,c,d)),a,rt("notes",[...i,...e.notes]))}function mo({found:s,none_reason:t,
looked_for:e,base_error:n,makespan_ns:o,together:i},r){let l=n?`Replay error on the recording: ${as(n.makespan)}`:"",a=i?
`the first ${Math.min(3,s.filter(p=>p.gain).length)} together save ${Fe(i,o)}`:"",c=r.some(p=>p.gain)?"largest gain":"la\
rgest cost";return`${[t?t[0].toUpperCase()+t.slice(1):`${E(r.length,"problem")} found (${E(e.length,"check")}), the ${c}\
 first`,a].filter(Boolean).join("; ")}. ${l?`${l}.`:""}`}function Fe({ns:s,low_ns:t,high_ns:e},n){let o=n?`, ${u(s/n,"sh\
are")} of ${u(n,"ns")}`:"";return`${u(s,"ns")} (${u(t,"ns")} to ${u(e,"ns")})${o}`}function Us(s,t,e){let{id:n,title:o,evidence:i,
certainty:r,advice:l,check:a,command:c,cost_ns:d,gain:p,where:f}=t,m=s.findings?.makespan_ns??null,y=p?.replayed_ns??null,
S=h("article",{class:"card finding",id:`finding-${e+1}`,"data-finding":n,"aria-labelledby":`finding-${e+1}-title`}),w=!!s.
difference,v=w?null:z=>nt=>wo(S,s,t,z,nt.currentTarget),M=Ge([w?null:p?["Gain",`${Fe(p,m)}${p.unexplained?`; the replay \
does not explain ${u(p.unexplained,"share")}`:""}`]:["Gain","not replayed"],d===null?null:["At stake",u(d,"ns")],["Certa\
inty",`${r}: ${po[r]??""}`]]),A=i.every(z=>z.command===i[0].command)?i[0].command:null,P=i.map(({text:z,value:nt,unit:Vt,
command:Pn})=>h("li",{},z,nt===null?null:h("b",{},` ${rs(nt,Vt)}`),A===null?[" ",ze(Pn)]:null)),ft=yo(t,v),T=Ge([...M,ft&&
["Where",ft]]),j=Ge([["Evidence",h("div",{},h("ul",{class:"proof"},P),A?ze(A):null)],["Try",l],["Check",a],c?["What if",
h("div",{},ze(c),y?X(` saves ${u(y,"ns")} of the recorded time`):null)]:null]);return S.append(h("header",{},h("span",{class:"\
rank"},String(e+1)),h("h3",{id:`finding-${e+1}-title`},o),p?h("span",{class:"saves"},`saves ${u(p.ns,"ns")}`):null,(v?go(
f):[]).map(([z,nt],Vt)=>h("button",{type:"button",class:Vt?"other":"go",title:`${z}, in the timeline`,onclick:v?.(nt)},Vt?
z:"Show in the timeline"))),h("details",{},h("summary",{},"Evidence and what to try"),p?fo(p,m):null,h("div",{class:"hal\
ves"},yt(T),yt(j)))),S}var Ge=s=>s.filter(t=>t!==null&&t!=="");function fo({ns:s,low_ns:t,high_ns:e},n){let o=i=>`${Math.
max(0,Math.min(100,100*i/(n||1))).toFixed(2)}%`;return h("div",{class:"gain",role:"img","aria-label":`Gain: ${Fe({ns:s,low_ns:t,
high_ns:e},n)}`,"--gain":o(s),"--low":o(t),"--high":o(e)},h("i",{}),h("s",{}))}function ze(s){let t=h("button",{type:"bu\
tton",class:"copy","aria-label":`Copy: ${s}`,title:"Copy the command"},"Copy");return t.addEventListener("click",async()=>{
t.textContent=await Yt(s)?"Copied":"Not allowed"}),h("span",{class:"command"},h("code",{},s),t)}function go({kernel:s,operator:t,
stream:e,rows:n,start_ns:o,end_ns:i}){let r=s?{gpu:!0,name:s}:t?{gpu:!1,name:t}:void 0,l=o!==void 0&&i!==void 0?{from:o,
to:i}:null,a=[];return n?.length&&a.push(["Longest event",{...ht(n),orElse:r??l}]),l&&a.push(["Its time",l]),s||t||e!==void 0?
a:a.reverse()}function yo({where:s},t){let{source:e,module:n,operator:o,kernel:i,phase:r,stream:l,step:a,rank:c,rows:d}=s,
p=[];e&&p.push(["line",e,{...$t(e),orElse:ht(d??[])}]),n&&p.push(["module",n.replaceAll(" / "," › "),Ts(n)]),o&&p.push(
["operator",o,{...ht(d??[],!1),name:o,orElse:{gpu:!1,name:o}}]),i&&p.push(["kernel",K(i),{...ht(d??[],!0),orElse:{gpu:!0,
name:i}}]);let f=[r,a,l===void 0?null:`stream ${l}`,c===void 0?null:`rank ${c}`].filter(Boolean);return!p.length&&!f.length?
null:h("span",{class:"chain"},p.map(([m,y,S])=>{let w=[X(m),h("bdi",{dir:"ltr"},y)];return t?h("button",{type:"button","\
data-part":m,title:`${m}: ${y}`,onclick:t(S)},w):h("span",{"data-part":m},w)}),f.length?h("span",{class:"said"},f.join("\
 · ")):null)}async function wo(s,t,{where:e},n,o){let i=t.ranks.findIndex(r=>r.rank===e.rank);return i>=0&&t.ranks.length>
1&&Number(C("rank").value)!==i&&(await st(i),o=document.querySelector(`#${s.id} .go`)),xt(n,o)}var bo=.03,Wt=({a:s,b:t,...e})=>({...e,...Bs("a_",s),...Bs("b_",t)}),Bs=(s,t)=>Object.fromEntries(Object.entries(t??{}).
map(([e,n])=>[s+e,n])),dt=s=>s.difference;function vo(s){let t=dt(s),e=t.per_iteration?"mean step":"whole trace",n=(o,i)=>o?
`${(i/o).toFixed(2)} × A`:"";return _("overview","Overview",t.per_iteration?`Averages per step, over ${E(t.iterations_a,
"step")} in A and ${E(t.iterations_b,"step")} in B.`:"Totals over the whole traces.",rt("warnings",t.damage),h("div",{class:"\
tiles"},I(`GPU time, ${e}: A`,u(t.total_a,"ns"),t.a),I(`GPU time, ${e}: B`,u(t.total_b,"ns"),`${t.b} · ${n(t.total_a,t.
total_b)}`),I(`Duration, ${e}: A`,u(t.latency_a,"ns"),t.device_a),I(`Duration, ${e}: B`,u(t.latency_b,"ns"),`${t.device_b}\
 · ${n(t.latency_a,t.latency_b)}`)),xo(t))}function ko(s){let{lines:t}=dt(s);if(!t.length)return null;let e=t.some(n=>n.
a_device_ns||n.b_device_ns);return _("lines","Source lines","Lines that call other operators come first. A line that onl\
y moved is shown as one row.",$(null,null,e?"lines_device":"lines_host",t,{sort:""}))}function xo(s){let t=(n,o)=>n.slice(
0,10).map(i=>s.ops.find(r=>r.name===i)).filter(i=>i!==void 0).filter(i=>i.change_ns*o>0),e=(n,o,i)=>b(n,null,o.length?H(
i,o,{sort:"",filter:!1}):gt("None."));return it([6,6],e("Slower in B",t(s.losses,1),"slower"),e("Faster in B",t(s.gains,
-1),"faster"))}function _o(s){let{a:t,b:e}=dt(s).iteration_list;if(!t.length||!e.length)return null;let n=h("div"),o=["A",
"B"],i=[t,e],r=Math.max(t.length,e.length);return B(n,240,()=>({grid:{left:74,right:20,top:14,bottom:40},tooltip:R(l=>U(
`step ${l[0].dataIndex}`,l.map(a=>[a,i[o.indexOf(a.seriesName)][a.dataIndex]]).filter(([,a])=>a).map(([a,c])=>[`${a.seriesName}\
 (${c.name})`,u(c.latency_ns,"ns")])),{trigger:"axis"}),xAxis:L({type:"category",data:Array.from({length:r},(l,a)=>String(
a))}),yAxis:L({type:"value",min:0,unit:"ns"}),series:i.map((l,a)=>({name:o[a],type:"bar",barMaxWidth:26,itemStyle:{color:W(
a)},data:l.map(c=>c.latency_ns)}))})),_("iterations","Steps","Step durations, in order.",b(null,null,n,N(o.map((l,a)=>({
name:l,color:a})))),$o(dt(s).phases))}var $o=s=>$("Serving steps by phase","mean latency of a step, new tokens per secon\
d","diff_phases",s.map(Wt),{sort:"",filter:!1});function So(s){let t=dt(s);if(!t.paths.length)return null;let e=t.paths.
some(l=>l.a?.device_ns||l.b?.device_ns),n=e?"device_ns":"host_ns",o=e?"change_launched_ns":"change_self_ns",i=e?"change_\
device_ns":"change_host_ns",r=t.paths.filter(l=>l[o]).map(Wt);return _("paths","Call tree",`Operators with the same call\
ers in both traces, by ${e?"the GPU time of the work that they launch":"CPU time"}.`,b("Changes by call path",e?"GPU tim\
e of the work that the call itself launches":"CPU time of the call itself",H(e?"paths_device":"paths_host",r,{sort:o})),
b("The tree",t.paths_left_out?`${E(t.paths_left_out,"smaller path")} not shown`:null,Mo(t.paths,n,i)))}function Mo(s,t,e){
let n=h("div",{class:"paths"}),o=[n],i=bo*Math.max(...s.map(r=>Math.abs(r[e])));return s.forEach((r,l)=>{let a=(s[l+1]?.
depth??0)<=r.depth,c=[h("code",{title:r.path},G(r.name,70)),` ${u(r.a?.[t],"ns")} → ${u(r.b?.[t],"ns")} `,h("b",{},`${r[e]>
0?"+":""}${u(r[e],"ns")}`)];o.length=r.depth+1;let d=a?h("div",{},c):h("details",{open:Math.abs(r[e])>=i},h("summary",{},
c));r.depth&&(d.style.marginLeft="18px"),(o[r.depth]??n).append(d),o[r.depth+1]=d}),n}function Oo(s){let t=dt(s),e=o=>t.
left_out[o]?`${k.format(t.left_out[o])} more in --json`:null,n=t.host_ops?.length?b("CPU time",e("host_ops"),H("host_ops",
t.host_ops.map(Wt),{sort:"change_ns"})):null;return _("tables","Operators and kernels","Matched by name. A dash means th\
at the name occurs in only one trace.",n,b("Operators",e("ops"),H("ops",t.ops.map(Wt),{sort:"change_ns"})),b("Kernels",e(
"kernels"),H("diff_kernels",t.kernels.map(Wt),{sort:"change_ns"})))}function Co(s){let{ranks:t,only_a:e,only_b:n,per_iteration:o}=dt(
s);if(!t)return null;let i=[["A",e],["B",n]].filter(([,r])=>r.length).map(([r,l])=>`${E(l.length,"rank")} that only ${r}\
 has, not shown`);return _("ranks","Ranks",o?"Mean step per rank.":"Whole trace per rank.",b(null,i.join("; "),H("diff_r\
anks",t,{sort:"change_ns"})))}var Gs=[vo,ue,Co,ko,_o,So,Oo];var zs=20,Eo=2,Fs=3,De=[{name:"Operator",color:0},{name:"Annotation and module",color:10},{name:"Runtime call",color:9},
{name:"Thread",color:8},{name:"Python function",color:1}];function Ao({names:s,name:t,parent:e,kind:n,count:o,total:i}){
let r={name:"All threads",kind:Fs,count:0,total:0,own:0,parent:null,children:[],level:0},l=[];return t.forEach((a,c)=>{let d=e[c]<
0?r:l[e[c]],p={count:o[c],total:i[c],own:i[c]},f={name:s[a],kind:n[c],...p,parent:d,children:[],level:d.level+1};l.push(
f),d.children.push(f),d.own-=f.total}),r.total=r.children.reduce((a,c)=>a+c.total,0),r.own=0,r}var We=class{constructor(t){
this.root=Ao(t),this.shown=this.current=this.root.children.length===1?this.root.children[0]:this.root,this.text="",this.
at=-1,this.width=0,this.hits=[],this.boxes=h("div",{class:"flame",role:"tree","aria-label":"CPU time by call tree"}),this.
picked=h("div",{class:"picked",role:"status"}),this.said=h("span",{class:"said",role:"status"}),this.input=h("input",{type:"\
search",placeholder:"Search names…","aria-label":"Search the flame graph",oninput:()=>this.search(this.input.value),onkeydown:e=>wt(
e,this.at,this.hits.length,n=>this.go(n))}),this.node=h("div",{},h("div",{class:"tools"},this.input,this.said,h("button",
{type:"button",class:"push",onclick:()=>this.zoom(this.root)},"Whole")),this.boxes,this.picked),this.boxes.addEventListener(
"keydown",e=>this.key(e)),new ResizeObserver(()=>this.width!==this.boxes.clientWidth&&this.draw()).observe(this.boxes)}search(t){
this.text=t.toLowerCase(),this.hits=[];let e=n=>{n.name.toLowerCase().includes(this.text)&&this.hits.push(n),n.children.
forEach(e)};this.text&&this.root.children.forEach(e),this.hits.sort((n,o)=>o.total-n.total),this.at=-1,this.said.textContent=
this.text?`${k.format(this.hits.length)} places`:"",this.draw()}go(t){this.at=t,this.current=this.hits[t];let{current:e}=this;
this.zoom(e.children.length||!e.parent?e:e.parent),this.said.textContent=`${this.at+1} of ${k.format(this.hits.length)} \
places`}zoom(t){this.shown=t,this.visible(this.current)||(this.current=t),this.draw()}visible(t){for(let e=t;e;e=e.parent)
if(e===this.shown)return!0;for(let e=this.shown;e;e=e.parent)if(e===t)return!0;return!1}draw(){this.width=this.boxes.clientWidth;
let t=[],e=[];for(let i=this.shown.parent;i;i=i.parent)e.unshift(i);for(let i of e)t.push(this.box(i,0,this.width));let n=this.
shown.level,o=(i,r,l)=>{t.push(this.box(i,r,l)),n=Math.max(n,i.level);for(let a of i.children){let c=a.total/(i.total||1)*
l;c>=Eo&&o(a,r,c),r+=c}};o(this.shown,0,this.width),this.boxes.style.height=`${(n+1)*zs}px`,this.boxes.replaceChildren(...t),
this.announce(this.current)}box(t,e,n){let o=this.text&&!this.hits.includes(t),i=h("div",{class:`box${o?" faded":""}${t===
this.current?" at":""}`,role:"treeitem",tabindex:t===this.current?0:-1,"aria-level":t.level+1,"aria-label":this.describe(
t),title:this.describe(t),onclick:()=>this.pick(t,!0),onfocus:()=>this.announce(t),"--look":te(De[t.kind].color),"--ink":tt(
g.color(De[t.kind].color))},n>24?K(t.name):"");return i.style.left=`${e}px`,i.style.width=`${Math.max(1,n-1)}px`,i.style.
top=`${t.level*zs}px`,t.box=i,i}describe(t){let e=u(t.total/(this.root.total||1),"share"),n=t.kind===Fs?"":`, ${u(t.own,
"ns")} itself, ${E(t.count,"call")}`;return`${t.name}: ${u(t.total,"ns")} (${e})${n}`}announce(t){let e=[];for(let n=t.parent;n&&
n.parent;n=n.parent)e.unshift(K(n.name));this.picked.replaceChildren(h("code",{},K(t.name)),` ${this.describe(t).slice(t.
name.length+1)}`,e.length?` · in ${e.join(" › ")}`:"")}pick(t,e){this.current=t,e?this.zoom(t):this.draw(),t.box?.focus(
{preventScroll:!0}),t.box?.scrollIntoView({block:"nearest"})}key(t){let e=this.current,n=e.parent?.children.filter(i=>i.
box?.isConnected)??[e],o={ArrowDown:()=>e.children.find(i=>i.box?.isConnected),ArrowUp:()=>e.parent,ArrowLeft:()=>n[n.indexOf(
e)-1],ArrowRight:()=>n[n.indexOf(e)+1],Home:()=>this.root}[t.key];if(t.key==="Enter"||t.key===" ")this.pick(e,!0);else if(t.
key==="Escape")this.zoom(this.root);else if(o){let i=o();i&&this.pick(i,!this.visible(i))}else return;t.preventDefault()}};
function Ds(s,t){if(!t.flame.name.length)return null;let e=new We(t.flame),n=t.flame.left_out,o=n?h("span",{},`${k.format(
n)} smaller boxes not shown`):null;return ie(e),_("flame","CPU time","Call tree per thread. Each box combines all calls \
with the same name and caller; its width is their total time. Click or press Enter to zoom in; arrow keys move.",b(null,
null,N(De.filter((i,r)=>t.flame.kind.includes(r)),{more:o}),e.node))}var Ws=24;function Z(s,{unit:t="ns",click:e=null}={}){let n=[...new Map(s.flatMap(p=>p.parts.filter(f=>f.ns>0).map(f=>[f.
name,f.color])))],o=h("div"),i=s.length>24?18:30,r=s.slice().reverse(),l=Math.max(...s.map(p=>p.whole))||1,a=s.some(p=>p.
name);B(o,Math.max(34,s.length*i)+(a?26:0),()=>({grid:{left:0,right:8,top:0,bottom:0,outerBoundsMode:"same",outerBounds:{
left:0,right:8,top:0,bottom:0}},tooltip:R(p=>{let f=r[p.dataIndex],m=f.parts.find(y=>y.name===p.seriesName);return m?U(f.
name?`${f.name}: ${m.name}`:m.name,[[t==="ns"?"time":"size",u(m.ns,t)],["share",u(m.ns/(f.whole||1),"share")]]):null}),xAxis:L(
{type:"value",max:l,show:a,splitNumber:6,splitLine:{show:a,lineStyle:{color:g.value("line")}},unit:t,axisLabel:{hideOverlap:!0}}),
yAxis:L({type:"category",data:r.map(p=>G(p.name,26)),show:a,axisLine:{show:!1}}),series:n.map(([p,f])=>({name:p,type:"ba\
r",stack:"all",barWidth:i<Ws?i-5:i-10,barMinHeight:0,itemStyle:{color:W(f),borderColor:g.value("card"),borderWidth:.5},data:r.
map(m=>m.parts.find(y=>y.name===p)?.ns??0),label:{show:i>=Ws,color:f==="line"?g.value("muted"):tt(g.color(f)),fontSize:11.5,
overflow:"truncate",formatter:m=>m.value/l>.06?`${ne(m.value/(r[m.dataIndex].whole||1))} %`:""}}))}),p=>{e&&p.on("click",
f=>e(r.length-1-f.dataIndex))});let c=p=>` ${u(s[0].parts.find(f=>f.name===p)?.ns,t)}`,d=n.map(([p,f])=>({name:s.length===
1?p+c(p):p,color:f}));return h("div",{},o,N(d))}var Lo="already launched";function Ks(s,t){let{streams:e,device_use:n,iteration_list:o}=t.analysis;if(!e.length)return null;
if(!n.length)return Po(e);let i=n.length>1,r=[...e].sort((a,c)=>c.busy_ns-a.busy_ns).slice(0,12),l=t.gaps.map(a=>({...a,
cause:To(a)}));return _("idle","Idle and overlap","Busy time per stream, overlap and the longest gaps.",it([6,6],b("Stre\
ams",e.length>r.length?`the ${r.length} busiest of ${e.length}`:null,Z(r.map(a=>({name:No(a,i),whole:a.window_ns,parts:[
{name:"Busy",color:0,ns:a.busy_ns},{name:"Idle",color:"line",ns:a.idle_ns}]})))),o.length?jo(t):null),$("Devices",null,"\
device_use",n,{sort:"busy_ns",filter:!1,jump:Kt}),$("Streams in numbers",null,"streams",e,{sort:"busy_ns",jump:Kt}),$("L\
ongest gaps",null,"gaps",l,{sort:"idle_ns",jump:a=>({from:a.start,to:a.start+a.idle_ns})}))}function Po(s){return _("idl\
e","Streams","Sums of durations. The trace has no start times, so busy and idle time are unknown.",$("Streams in numbers",
null,"streams",s,{sort:"total_ns",jump:Kt}))}function To({before:s,after:t,launch_ns:e}){if(!t)return"no later event";let n=e===
null?"launch not in the trace":e>0?"launched late":Lo;return s?n:`before the first event: ${n}`}var Kt=({device:s,stream:t})=>({
gpu:!0,device:s,stream:t});function No({device:s,stream:t},e){return e?`GPU ${s} · stream ${t}`:`stream ${t}`}function jo(s){
let t=s.analysis.iteration_list,e=h("div"),n=[{name:"GPU busy",color:0,value:o=>o.gpu_ns},{name:"GPU idle",color:"line",
value:o=>o.latency_ns-o.gpu_ns}];return B(e,210,()=>({grid:{left:62,right:10,top:12,bottom:26},tooltip:R(o=>{let i=t[o.dataIndex];
return U(i.name,[["duration",u(i.latency_ns,"ns")],["GPU busy",u(i.gpu_ns,"ns")],["share",u(i.gpu_ns/(i.latency_ns||1),"\
share")]])}),xAxis:L({type:"category",data:t.map(o=>o.name),splitLine:{show:!1},axisLabel:{hideOverlap:!0,formatter:o=>o.
replace("ProfilerStep#","step ")}}),yAxis:L({type:"value",splitNumber:4,unit:"ns"}),series:n.map(({name:o,color:i,value:r})=>({
name:o,type:"bar",stack:"all",barMaxWidth:46,itemStyle:{color:W(i)},data:t.map(r)}))})),b("Steps",`mean ${u(s.analysis.iterations.
mean_latency_ns,"ns")}`,e,N(n))}var Io=260,Hs=0,qs=1;function Ro(s,t,e){let n=h("div",{"aria-label":`${t.title}, per rank`}),o=new Set(t.outliers),i=r=>s.
numbers.map((l,a)=>[l,t.values[a]]).filter(([l,a])=>a!==null&&o.has(l)===r);return B(n,Io,()=>({grid:{left:0,right:12,top:12,
bottom:0,outerBoundsMode:"same",outerBounds:{left:0,right:12,top:12,bottom:0}},tooltip:R(r=>U(`rank ${r.value[0]}`,[[t.title,
u(r.value[1],"ns")]])),xAxis:L({type:"value",min:"dataMin",max:"dataMax",minInterval:1,splitLine:{show:!1}}),yAxis:L({type:"\
value",scale:!0,splitNumber:4,unit:"ns"}),series:[{name:"Ranks",type:"scatter",symbolSize:4,itemStyle:{color:g.color(Hs)},
data:i(!1)},{name:"Stand out",type:"scatter",symbol:"diamond",symbolSize:10,itemStyle:{color:g.color(qs)},data:i(!0)}]}),
r=>r.on("click",l=>e(l.value[0]))),h("div",{},n,N([{name:"Ranks",color:Hs},{name:"Stand out",color:qs}]))}function Xs(s){
let{many:t}=s;if(!t)return null;let e=d=>s.ranks.findIndex(p=>p.rank===d),n=h("div",{class:"picked",role:"status"}),o=h(
"div"),i=d=>{let p=e(d);if(p<0){n.replaceChildren(`rank ${d} is not on this page: `,h("code",{},`etplus report … --ranks\
 ${d}`));return}C("rank").value=p,O.draw(p)},r=h("select",{"aria-label":"Quantity",onchange:()=>l()},t.quantities.map((d,p)=>h(
"option",{value:p},d.title))),l=()=>{for(let d of V)o.contains(d.node)&&(d.instance?.dispose(),V.delete(d));o.replaceChildren(
Ro(t,t.quantities[r.value||0],i));for(let d of V)o.contains(d.node)&&o.isConnected&&d.draw()};l();let a=d=>d.length?`${d.
slice(0,12).join(", ")}${d.length>12?", …":""}`:"none",c=t.tables.map(({title:d,name:p,columns:f,rows:m,left_out:y})=>$(
d,y?`${E(y,"more row")} not shown`:null,`job_${p}`,m,{columns:f,sort:"",click:f[0].title==="rank"?S=>i(S[0]):void 0}));return _(
"many","All ranks",`The other sections show ${s.ranks.length} of ${k.format(t.numbers.length)} ranks: outliers, the firs\
t and the middle rank. Click a rank to show it.`,h("div",{class:"tiles"},I("Ranks",k.format(t.numbers.length),`${s.ranks.
length} in detail`),I("Stragglers",k.format(t.stragglers.length),a(t.stragglers)),I("Stand out",k.format(t.outliers.length),
a(t.outliers))),b("All ranks",null,h("div",{class:"tools"},r),o,n),...c)}var Vs={prefill:1,decode:0,mixed:6,capture:4,idle:"line",unknown:9},Uo=30,Ys=(s,{start_ns:t,latency_ns:e})=>{let n=t-s.start_ns;
return{from:n,to:n+e}};function Bo(s,t,e){let n=t.filter(o=>o.phase===e||e==="all");return n.length?Ys(s,n.reduce((o,i)=>i.
latency_ns>o.latency_ns?i:o)):null}function Zs(s,t){let{serving_steps:e,serving_phases:n}=t.analysis;if(!e.length)return null;
let o=Object.keys(Vs).filter(r=>e.some(l=>l.phase===r)).map(r=>({name:r,color:Vs[r]})),i=e.filter(r=>r.tokens_per_second!==
null);return _("serving","Serving","A step ends with its annotation or with its last GPU event, whichever is later.",b("\
Phases over time",null,zo(t,e,o)),it([6,6],b("Latency of steps",Go(e),Js(t,e,o,"latency_ns","ns")),i.length?b("Tokens pe\
r second","new tokens per step duration",Js(t,i,o,"tokens_per_second","tokens/s")):null),Fo(t,e,o),$("Phases",null,"serv\
ing_phases",n,{sort:"",filter:!1,jump:({phase:r})=>Bo(t,e,r)}),$("Steps",D(t,"serving_steps"),"serving_steps",e,{sort:"",
jump:r=>Ys(t,r)}))}function Go(s){let t=s.filter(e=>e.time_ns<e.latency_ns).length;return t?`${t} of ${s.length} begin b\
efore the GPU has finished the previous step`:null}function Qs(s,t){let e=(n,o)=>n?`${u(o,"count")} of ${u(n,"count")} r\
equests`:null;return U(`step ${t.step}: ${t.phase}`,[["at",u(t.start_ns-s.start_ns,"ns")],["latency",u(t.latency_ns,"ns")],
["GPU busy",u(t.device_ns,"ns")],["prefill tokens",e(t.prefill_requests,t.prefill_tokens)],["decode tokens",e(t.decode_requests,
t.decode_tokens)],["keys",t.keys===null?null:u(t.keys,"count")],["tokens/s",t.tokens_per_second===null?null:F(t.tokens_per_second)]])}
function zo(s,t,e){let n=h("div"),o=new Map(e.map((i,r)=>[i.name,r]));return B(n,52+26*e.length,()=>({grid:{left:74,right:24,
top:8,bottom:30},tooltip:R(i=>Qs(s,i.data.row)),xAxis:L({type:"value",...Dt(s),unit:"ns",axisLabel:{hideOverlap:!0}}),yAxis:L(
{type:"category",data:e.map(i=>i.name),inverse:!0}),dataZoom:[{type:"inside",filterMode:"none"}],series:[{type:"custom",
encode:{x:[1,2],y:0},renderItem:(i,r)=>{let[l,a]=r.coord([r.value(1),r.value(0)]),[c]=r.coord([r.value(2),r.value(0)]);return{
type:"rect",shape:{x:l,y:a-8,width:Math.max(c-l,1),height:16},style:{fill:W(e[r.value(0)].color),stroke:g.value("card"),
lineWidth:.5}}},data:t.map(i=>{let r=i.start_ns-s.start_ns;return{value:[o.get(i.phase),r,r+i.latency_ns],row:i}})}]})),
n}function Js(s,t,e,n,o){let i=h("div"),r=t.map(a=>a[n]).filter(a=>a>0),l=r.length>1&&Math.max(...r)>Uo*Math.min(...r);return B(
i,240,()=>({grid:{left:84,right:24,top:14,bottom:28},tooltip:R(a=>Qs(s,a.data.row)),xAxis:L({type:"value",...Dt(s),unit:"\
ns",axisLabel:{hideOverlap:!0}}),yAxis:L({type:l?"log":"value",min:l?void 0:0,unit:o}),dataZoom:[{type:"inside",filterMode:"\
none"}],series:e.map(({name:a,color:c})=>({name:a,type:"scatter",symbolSize:t.length>200?5:9,symbol:at[J(c)],itemStyle:{
color:g.color(c),opacity:.85},data:t.filter(d=>d.phase===a&&(!l||d[n]>0)).map(d=>({value:[d.start_ns-s.start_ns,d[n]],row:d}))}))})),
h("div",{},i,N(e))}function Fo(s,t,e){let n=t.filter(w=>w.flops>0&&w.bytes>0&&w.device_ns>0),o=Object.values(s.analysis.
devices).filter(w=>Object.keys(w.peaks).length&&w.memory_gb_s);if(!n.length)return null;let i=w=>[w.flops/w.bytes,w.flops/
w.device_ns*1e9],r=n.map(i),l=h("div"),a=o.length?Object.entries(o[0].peaks):[],c=o.length?o[0].memory_gb_s*1e9:0,d=Math.
max(0,...a.map(w=>w[1])),p=(w,v)=>10**v(Math.log10(w)),f=p(Math.min(...r.map(w=>w[0])),Math.floor),m=p(Math.max(...r.map(
w=>w[0]),c?3*d/c:1),Math.ceil),y=p(Math.min(...r.map(w=>w[1])),Math.floor),S=p(Math.max(...r.map(w=>w[1]),d)*1.01,Math.ceil);
return B(l,340,()=>({grid:{left:84,right:130,top:16,bottom:46},tooltip:R(w=>w.data.row?U(`step ${w.data.row.step}: ${w.data.
row.phase}`,[["FLOP per byte",F(w.data.value[0])],["achieved",u(w.data.value[1],"flop/s")],["memory",u(w.data.row.bytes/
w.data.row.device_ns*1e9,"bytes/s")],["known work",`${u(w.data.row.known_ns/(w.data.row.events_ns||1),"share")} of GPU t\
ime`]]):null),xAxis:L({type:"log",min:f,max:m,name:"FLOP per byte",nameLocation:"middle",nameGap:28,axisLabel:{formatter:oe}}),
yAxis:L({type:"log",min:y,max:S,unit:"flop/s"}),series:[...a.map(([w,v])=>({type:"line",symbol:"none",silent:!0,lineStyle:{
color:g.value("muted"),width:1.5},data:[[Math.max(f,y/c),Math.max(f*c,y)],[v/c,v],[m,v]].filter(M=>M[0]>=f),endLabel:{show:!0,
formatter:`${w} ${ot(v,"flop/s")}`,color:g.value("muted"),fontSize:11.5}})),...e.map(({name:w,color:v})=>({name:w,type:"\
scatter",z:3,symbolSize:11,symbol:at[J(v)],itemStyle:{color:g.color(v),opacity:.8,borderColor:g.value("card"),borderWidth:1},
data:n.filter(M=>M.phase===w).map(M=>({value:i(M),row:M}))}))]})),b("Roofline of steps","known FLOPs and bytes of a step\
, divided by its GPU busy time",N(e),l)}function tn(s,t){if(!t.tables)return null;let e=t.tables.map(({title:n,name:o,columns:i,rows:r})=>$(n,"",o,r,{columns:i,
sort:""}));return e.some(Boolean)?_("tables","Further tables",null,...e):null}var Q=50,pe=12,St=16,Mt=22,Ot=7,Ke=50;function en({lane:s,depth:t,ts:e}){let n=[];for(let o=0;o<e.length;o++){let i=n[n.
length-1];i&&i.lane===s[o]&&i.depth===t[o]?i.end=o+1:n.push({lane:s[o],depth:t[o],begin:o,end:o+1})}return n}function sn(s,t){
return[{type:"inside",filterMode:"none",zoomLock:!0,startValue:s,endValue:t,minValueSpan:Ke},{type:"slider",filterMode:"\
none",top:2,height:22,left:4,right:4,startValue:s,endValue:t,brushSelect:!1,showDetail:!1,borderColor:"transparent",backgroundColor:g.
value("sunk"),fillerColor:`${g.color(0)}33`,dataBackground:{lineStyle:{opacity:0},areaStyle:{color:g.value("faint"),opacity:.6}},
selectedDataBackground:{lineStyle:{opacity:0},areaStyle:{color:g.color(0),opacity:.8}},handleStyle:{borderColor:g.color(
0),color:g.value("card")},moveHandleSize:0}]}function nn(s){let t=0;return s.map(e=>(t+=e)-e)}function ut(s,t,e,n,o){for(;e<
n;){let i=e+n>>1;s[i]+t[i]<o?e=i+1:n=i}return e}var Do=400,Wo=600,He={fields:[],lane:[],depth:[],from:[],to:[],count:[],data:[]},Ct=class{constructor(t,e){this.tiles=t??
He,this.changed=e,this.decoded=new Map,this.pending=new Set,this.rows=new Map,this.first=[],this.size=0;for(let n=0;n<this.
tiles.lane.length;n++){let o=`${this.tiles.lane[n]} ${this.tiles.depth[n]}`,i=this.rows.get(o);i?i[1]=n+1:this.rows.set(
o,[n,n+1]),this.first.push(this.size),this.size+=this.tiles.count[n]}}*within(t,e,n,o){let[i,r]=this.rows.get(`${t} ${e}`)??
[0,0];for(let l=i;l<r&&this.tiles.from[l]<=o;l++)this.tiles.to[l]>=n&&(yield l)}of(t,e,n){if(!this.size)return null;let o=t.
map(({lane:l,depth:a})=>[...this.within(l,a,e,n)]);if(o.reduce((l,a)=>l+a.length,0)>Do)return null;let r=o.flat().filter(
l=>!this.decoded.has(l)&&!this.pending.has(l));return r.length&&this.fetch(r),o.map(l=>l.every(a=>this.decoded.has(a))?l.
map(a=>this.use(a)):null)}use(t){let e=this.decoded.get(t);return this.decoded.delete(t),this.decoded.set(t,e),e}async fetch(t){
for(let n of t)this.pending.add(n);let e=await Promise.all(t.map(n=>this.decode(n)));t.forEach((n,o)=>{this.pending.delete(
n),this.keep(n,e[o])}),this.changed()}keep(t,e){this.decoded.set(t,e);for(let n of this.decoded.keys()){if(this.decoded.
size<=Wo)break;this.decoded.delete(n)}}async decode(t){let e=this.tiles.count[t],n=await Bt(this.tiles.data[t],this.tiles.
fields,e),o=this.tiles.lane[t],i=this.tiles.depth[t];return Object.assign(n,{lane:o,depth:i,first:this.first[t],count:e})}tileOf(t){
let e=0,n=this.first.length;for(;n-e>1;){let o=e+n>>1;this.first[o]<=t?e=o:n=o}return e}placeOf(t){let e=this.tileOf(t);
return{lane:this.tiles.lane[e],depth:this.tiles.depth[e]}}async event(t){let e=this.tileOf(t);this.decoded.has(e)||this.
keep(e,await this.decode(e));let n=this.use(e),o={number:t,...this.placeOf(t)};for(let{name:i}of this.tiles.fields)o[i]=
n[i][t-n.first];return o}};var fe=10,qe={"host work":0,"GPU work":4,collective:2},Ko=1,Ho=24,qo={kinds:[],work:[],main:[],makespan_ns:0,shown_ns:0,
tiles:He},me=class{constructor(t,e){this.path=t??qo,this.timeline=e,this.shown=!0,this.walking=!1,this.at=null,this.tiles=
new Ct(this.path.tiles,()=>e.redraw()),this.node=h("div",{class:"picked",id:"path-said","aria-live":"polite"}),t&&this.say(
null)}get size(){return this.tiles.size}isWork(t){return this.path.work.includes(t)}color(t){return qe[this.path.kinds[t]]??
Ko}*within(t,e){let n=[...this.tiles.within(0,0,t,e)];if(n.length>Ho){for(let i of n){let r=this.path.tiles.from[i];yield{
number:-1,ts:r,dur:this.path.tiles.to[i]-r,kind:this.path.main[i],event:-1}}return}let o=this.tiles.of([{lane:0,depth:0}],
t,e)?.[0]??[];for(let i of o)for(let r=ut(i.ts,i.dur,0,i.count,t);r<i.count&&i.ts[r]<=e;r++)yield{number:i.first+r,ts:i.
ts[r],dur:i.dur[r],kind:i.kind[r],event:i.event[r]}}async walk(t){let{from:e,inspector:n}=this.timeline;if(!this.size||!n||
this.walking)return;this.walking=!0;let o=n.event?n.event.ts:e,i=Math.max(0,Math.min(this.size-1,this.at===null?await this.
atTime(o):this.at+t)),r=await this.tiles.event(i);this.shown=!0,this.walking=!1,this.say(r),r.event>=0&&await n.select(r.
event),this.at=i,this.walking=!1;let l=r.event>=0?this.timeline.tiles.placeOf(r.event):{lane:0,depth:0};n.reveal({...r,...l}),
this.timeline.redraw(),this.node.dataset.element=i}async atTime(t){let{to:e,from:n}=this.path.tiles,o=Math.min(e.findIndex(
c=>c>=t)>>>0,n.length-1),{ts:i,dur:r,count:l,first:a}=await this.tiles.decode(o);return a+ut(i,r,0,l,t)}toggle(){this.shown=
!this.shown,this.timeline.redraw()}say(t){let{makespan_ns:e,shown_ns:n,kinds:o}=this.path,i=u(e,"ns"),r=k.format(this.size),
l=n===e?"":` (${u(n,"ns")} on this page)`;this.node.textContent=t?`Critical path, element ${k.format(t.number+1)} of ${r}\
: ${o[t.kind]}, ${u(t.ns,"ns")} of ${i}`:`Critical path: ${r} elements, ${i} according to the replay${l}; press n or p t\
o follow it, c to hide it`,this.node.dataset.ns=String(t?.ns??"")}};var on=12,rn=80,Xo=90,ge=class{constructor(t,e){this.timeline=t,this.devices=e,this.details=new q(t.data.details,t.tiles,
t.data.lanes),this.event=null,this.arrows=[],this.asked=0;let n="Details of the selected event";this.node=h("div",{class:"\
details",role:"region",hidden:!0,tabindex:-1,"aria-label":n}),this.node.addEventListener("keydown",o=>{o.key==="Escape"&&
(this.timeline.canvas.focus(),o.preventDefault())})}async select(t,{reveal:e=!1,focus:n=!1}={}){let o=++this.asked;this.
timeline.critical.at=null;let[i,r]=await Promise.all([this.details.of(t),this.details.texts()]),l=q.first(i.sources,"ope\
rator"),a=l===null?null:await this.details.of(l);a&&(a.full=r.names[a.name]);let c=(await this.callersOf(a??i)).map(m=>r.
names[m.name]),d=await this.arrowsOf(i);if(o!==this.asked)return;this.event=i,this.arrows=d,this.panel(i,r,a,c),this.timeline.
picked.dataset.event=t,e&&this.reveal(i),this.timeline.redraw();let{kinds:p,lanes:f}=this.timeline.data;this.timeline.sayOf(
{...i,kind:p[i.kind],lane:f[i.lane]}),n&&this.node.focus(),this.node.dataset.arrows=JSON.stringify(d.map(m=>[m.kind,m.from.
number,m.to.number])),this.node.dataset.event=t}async callersOf(t){let e=[];for(let n=q.first(t.sources,"caller");n!==null;){
let o=await this.details.of(n);e.unshift(o),n=q.first(o.sources,"caller")}return e}clear(){this.asked++,this.event=null,
this.arrows=[],this.node.hidden=!0,delete this.node.dataset.event,this.timeline.redraw()}async arrowsOf(t){let e=[],n=(a,c,d)=>c>=
0&&d>=0&&e.length<rn&&e.push([a,c,d]);for(let{kind:a,other:c}of t.sources)n(a,c,t.number);for(let{kind:a,other:c}of t.targets)
a!=="caller"&&n(a,t.number,c);let o=t.gpu?q.first(t.sources,"launch"):null;if(o!==null){let{sources:a}=await this.details.
of(o);for(let{kind:c,other:d}of a)c==="caller"&&n(c,d,o)}let i=t.targets.filter(({kind:a,other:c})=>a==="caller"&&c>=0);
for(let{other:a}of i.slice(0,rn))for(let c of(await this.details.of(a)).targets)c.kind==="launch"&&(n("caller",t.number,
a),n("launch",a,c.other));let r=e.some(([a])=>a==="launch"),l=e.filter(([a])=>!(a==="operator"&&r));return Promise.all(l.
map(async([a,c,d])=>({kind:a,from:await this.timeline.tiles.event(c),to:await this.timeline.tiles.event(d)})))}panel(t,e,n,o){
let{lanes:i,kinds:r}=this.timeline.data,l=i[t.lane],a=`#event-${t.number}`,c=[x("ts","Start",t.ts,jt(t.ts)),Ft("dur",t.gpu?
"Duration":"Total time",t.dur),...t.gpu?Es(t,e,l,n,this.devices):Cs(t,e),...o.length?[x("callers","Call stack",o,o.join(
" › "))]:[]],d=(p,f,m)=>h("button",{type:"button",title:f,onclick:m},p);this.node.hidden=!1,this.node.replaceChildren(
h("header",{},h("div",{},It(r[t.kind].color),h("b",{},r[t.kind].name),h("span",{},l.name)),h("h3",{},h("code",{"data-key":"\
name"},e.names[t.name])),h("div",{class:"tools"},d("Fill the view","z",()=>this.timeline.fill(t)),d("Events meanwhile","\
m",()=>this.timeline.span?.set(t.ts,t.ts+t.dur)),d("Close","Esc",()=>this.clear()),Te(t.gpu?"kernel":"call",e.names[t.name],
"In the table"),O.cameFrom?d("Back","Back to the row or finding (Backspace)",he):null,h("a",{href:a,title:"Link to this \
event"},a))),h("dl",{},c.map(({key:p,label:f,value:m,text:y})=>h("div",{class:y.length>Xo?"long":null},h("dt",{},f),h("d\
d",{"data-key":p,"data-value":JSON.stringify(m),title:`${f}: ${m}`},Te(p,m)??y)))),...this.relations(t.sources,0),...this.
relations(t.targets,1))}relations(t,e){return Object.keys(Re).map(n=>{let o=t.filter(i=>i.kind===n).map(i=>i.other);return o.
length?this.relation(n,e,o):null}).filter(Boolean)}relation(t,e,n){let o=n.filter(c=>c>=0),i=h("ul"),r=n.length-o.length,
l=h("button",{type:"button"},`Show all ${k.format(o.length)}`),a=async c=>{let{names:d}=this.timeline.data,p=await Promise.
all(o.slice(0,c).map(f=>this.timeline.tiles.event(f)));i.replaceChildren(...p.map(f=>h("li",{},h("button",{type:"button",
"data-event":f.number,onclick:()=>this.select(f.number,{reveal:!0})},h("code",{},G(d[f.name],80)),h("span",{},`${u(f.dur,
"ns")} at ${u(f.ts,"ns")}`)))))};return l.addEventListener("click",()=>{l.remove(),a(o.length)}),a(on),h("div",{class:"r\
elation","data-relation":`${t} ${e?"out":"in"}`},h("h4",{},Re[t][e],h("small",{},t)),i,o.length>on?l:null,r?h("p",{class:"\
none"},`${k.format(r)} not on this page`):null)}reveal(t){let{timeline:e}=this,{ts:n,dur:o,lane:i,depth:r}=t,l=e.to-e.from,
a=l/(e.canvas.clientWidth||1e3);r>=(e.folded.get(i)??1/0)&&(e.folded.delete(i),e.refold()),o<4*a||o>l?e.show(n-Math.max(
200,4*o),n+Math.max(200,5*o)):(n<e.from||n+o>e.to)&&e.show(n+o/2-l/2,n+o/2+l/2);let c=e.canvas.getBoundingClientRect().top+
e.rowAt(t).y;(c<70||c>innerHeight-40)&&scrollBy({top:c-innerHeight/3,behavior:"instant"})}firstInView(){let{timeline:t}=this;
for(let[e,,,n,,,o]of t.visible()){let{event:i}=t.at([0,0,0,n,0,0,o]);if(i!==null&&e>=t.from)return i}return null}follow(...t){
if(!this.event)return;let{sources:e,targets:n}=this.event;for(let[o,i]of t){let r=q.first(i?n:e,o);if(r!==null)return this.
select(r,{reveal:!0})}}beside(t){let{tiles:e}=this.timeline,n=this.event?this.event.number+t:this.firstInView();if(n===null||
n<0||n>=e.size)return;if(!this.event)return this.select(n,{reveal:!0});let{lane:o,depth:i}=e.placeOf(n);o===this.event.lane&&
i===this.event.depth&&this.select(n,{reveal:!0})}act(t){return{ArrowLeft:()=>this.beside(-1),ArrowRight:()=>this.beside(
1),ArrowUp:()=>this.follow(["launch",0],["operator",0],["caller",0]),ArrowDown:()=>this.follow(["launch",1],["caller",1],
["operator",1]),o:()=>this.follow(["operator",0],["caller",0]),l:()=>this.follow(["launch",0],["caller",1]),k:()=>this.follow(
["operator",1],["launch",1]),b:()=>this.follow(["forward",1],["forward",0]),g:()=>this.follow(["data",0],["event",0],["s\
ync",0],["comm",0],["thread_handoff",0],["graph",0]),h:()=>this.follow(["data",1],["event",1],["sync",1],["comm",1],["th\
read_handoff",1],["graph",1]),z:()=>this.event&&this.timeline.fill(this.event),m:()=>this.event&&this.timeline.span?.set(
this.event.ts,this.event.ts+this.event.dur),Enter:()=>this.event?this.node.focus():this.beside(0),Escape:()=>this.clear()}[t]}};
function Xe(){let s=Number(/^#event-(\d+)$/.exec(location.hash)?.[1]??NaN),{timeline:t}=O;t?.inspector&&s<t.tiles.size&&
t.inspector.select(s,{reveal:!0})}var Vo=[["w s a d","zoom in and out, move left and right"],["← →","go to the previous or next event in the row of th\
e selected event, or to the first event in view if none is selected"],["↑","go to the launch call, operator or caller"],
["↓","go to the called operator or launched kernel"],["o","kernel → its operator"],["l","kernel → its launch call"],
["k","operator or launch call → its first kernel"],["b","forward ↔ backward operator"],["g h","go to the event that \
the selected event waits for or reads from; go to an event that waits for it or reads from it"],["n p","go to the next o\
r previous element of the critical path"],["c","show or hide the critical path"],[". ,","go to the next or previous sear\
ch result, or to the next or previous event of the row you came from"],["/ Backspace","go to the search; go back to the \
row or finding that led here"],["z","fill the view with the selected event"],["m","show a table of the events that overl\
ap the selected event"],["[ ]","set the start or end of a span to the start or end of the selected event"],["Shift + dra\
g","select a span and list its events in a table"],["Enter","go to the details; Esc goes back, and a second Esc closes t\
he details"],["?","show this list"]];function an(){return h("dialog",{class:"keys","aria-label":"Keys of the timeline"},
h("h3",{},"Keys of the timeline"),h("dl",{},Vo.map(([t,e])=>h("div",{},h("dt",{},h("kbd",{},t)),h("dd",{},e)))),h("form",
{method:"dialog"},h("button",{},"Close")))}var ye=6,Jo={caller:9,operator:4,launch:4,forward:5,data:3,comm:2,sync:1,event:1},Yo=1.5;function cn(s){return{id:"overl\
ay",type:"custom",clip:!0,silent:!0,z:5,progressive:0,encode:{x:[0,1],y:-1},tooltip:{show:!1},renderItem:(t,e)=>s.overlays[t.
dataIndex]?.draw(e)??null,data:Ve(s)}}function Ve(s){return s.overlays=[...Qo(s),...ni(s),...ti(s),...Zo(s)],s.overlays.
map(({from:t,to:e})=>[t,e])}var pt=(s,t)=>s.coord([t,0])[0];function we(s,t,e,n,o,i=0){return{from:s,to:t,draw:l=>{let a=pt(
l,s)-i,c=Math.max(1+2*i,pt(l,t)-a+i);return{type:"rect",shape:{x:a,y:e-i,width:c,height:n+2*i,r:2*i},style:o}}}}function*Zo(s){
let t=s.inspector?.event;if(!t)return;let{y:e,tall:n}=s.rowAt(t),o={fill:"transparent",stroke:g.value("text"),lineWidth:2};
yield we(t.ts,t.ts+t.dur,e,n,o,1)}function*Qo(s){let t=s.span?.selected,e=g.value("accent");t&&(yield we(t.from,t.to,Q,s.
height,{fill:e,opacity:.14,stroke:e,lineWidth:1}))}function*ti(s){for(let{kind:t,from:e,to:n}of s.inspector?.arrows??[]){
let o=s.rowAt(e),i=s.rowAt(n),r=t==="caller"||t==="operator",l=r?n.ts:e.ts+e.dur,a=Jo[t]??9;yield{from:Math.min(l,n.ts),
to:Math.max(l,n.ts),draw:c=>{let d=o.y+o.tall/2;return r?ei(pt(c,n.ts),d,o.y<i.y?i.y:i.y+i.tall,g.color(a)):si(pt(c,l),d,
pt(c,n.ts),i.y+i.tall/2,g.color(a))}}}}function ei(s,t,e,n){let o=e>t?-ye:ye,i=ye/2+1,r={type:"line",shape:{x1:s+2,y1:t,
x2:s+2,y2:e+o},style:{stroke:n,lineWidth:1.6}};return hn(r,[[s+2,e+2],[s+2-i,e+o],[s+2+i,e+o]],n)}function si(s,t,e,n,o){
let i=Math.max(18,Math.min(90,Math.abs(e-s)/3)),r=ye,l={type:"bezierCurve",shape:{x1:s,y1:t,x2:e-r,y2:n,cpx1:s+i,cpy1:t,
cpx2:e-r-i,cpy2:n},style:{fill:"none",stroke:o,lineWidth:1.6,opacity:.9}},a=e-r-1,c=r/2+1;return hn(l,[[e,n],[a,n-c],[a,
n+c]],o)}function hn(s,t,e){return{type:"group",children:[s,{type:"polygon",shape:{points:t},style:{fill:e}}]}}function*ni(s){
let{critical:t,from:e,to:n}=s;if(!t?.size||!t.shown)return;let o=(n-e)/Math.max(200,s.canvas.clientWidth||1e3),i=null,r=null;
for(let l of t.within(e,n)){let a=l.ts+l.dur,c=t.color(l.kind);if(i&&(i.color===c||a-i.from<o)?i.to=Math.max(i.to,a):(i&&
(yield ln(i)),i={from:l.ts,to:a,color:c}),!t.isWork(l.kind))continue;if(l.event<0||l.dur<Yo*o){r=null;continue}let d={...l,
...s.rowAt(s.tiles.placeOf(l.event)),color:c};yield oi(d,l.number===t.at),r&&(yield ii(r,d)),r=d}i&&(yield ln(i))}function ln({
from:s,to:t,color:e}){return we(s,t,Q+1,fe-4,{fill:W(e)})}function oi({ts:s,dur:t,y:e,tall:n},o){let i=o?5:3;return we(s,
s+t,e+n-i,i,{fill:g.value("path")})}function ii(s,t){let e=s.ts+s.dur;return{from:Math.min(e,t.ts),to:Math.max(e,t.ts),draw:o=>({
type:"line",shape:{x1:pt(o,e),y1:s.y+s.tall-1,x2:pt(o,t.ts),y2:t.y+t.tall-1},style:{stroke:g.value("path"),lineWidth:1.5,
lineDash:[3,2]}})}}var dn=60,be=class{constructor(t){this.timeline=t,this.input=h("input",{type:"search",id:"search",placeholder:"Search ca\
lls and kernels…","aria-label":"Search the timeline",title:"Enter, Shift + Enter: next, previous call; ↓ ↑: next, prev\
ious name"}),this.said=h("span",{class:"said",id:"search-said",role:"status"}),this.list=h("div",{class:"found",hidden:!0}),
this.node=h("div",{class:"searching"},this.input,this.list),this.rows=[],this.at=-1,this.input.addEventListener("input",
()=>this.find(this.input.value)),this.input.addEventListener("keydown",e=>this.key(e)),document.addEventListener("click",
e=>{this.node.contains(e.target)||(this.list.hidden=!0)})}key(t){t.key==="Escape"?(this.input.value="",this.find("")):t.
key==="Enter"?(t.preventDefault(),this.step(t.shiftKey?-1:1)):t.key!=="Home"&&t.key!=="End"&&wt(t,this.at,this.rows.length,
e=>this.choose(e))}find(t){let{timeline:e}=this,{names:n,found:o,places:i,kinds:r}=e.data,l=t.trim().toLowerCase(),a=new Set(
l?n.flatMap((p,f)=>le(p,l)?[f]:[]):[]);e.matches=l?a:null,e.hits=null;let c=l?o.filter(p=>a.has(p.name)):[],d=l?i.filter(
p=>p.text.toLowerCase().includes(l)):[];this.rows=[...c.slice(0,dn),...d.slice(0,dn)],this.at=-1,this.list.hidden=!this.
rows.length,this.list.replaceChildren(...this.rows.map((p,f)=>h("button",{type:"button",tabindex:-1,"data-place":p.text,
onclick:()=>this.choose(f,!0)},p.text?X(p.what):It(r[p.kind].color),h("code",{},G(p.text??n[p.name],120)),h("span",{},`${k.
format(p.count)} ×`),h("span",{},u(p.total,"ns"))))),this.said.textContent=l?c.length?`${E(c.reduce((p,f)=>p+f.count,0),
"call")} of ${E(c.length,"name")}`:d.length?`${k.format(d.length)} lines and modules`:"nothing found":"",e.redraw()}choose(t,e=!1){
let{timeline:n}=this,o=this.rows[t];this.at=t,[...this.list.children].forEach((r,l)=>r.classList.toggle("at",l===t)),this.
list.children[t].scrollIntoView({block:"nearest"}),this.list.hidden=e,n.hits=null;let i=Math.max(o.dur*3,200);n.show(o.ts-
i,o.ts+o.dur+i),!o.text&&(n.matches=new Set([o.name]),n.say(o.name,[n.data.kinds[o.kind].name,`${E(o.count,"call")}, ${u(
o.total,"ns")}`,`longest ${u(o.dur,"ns")} at ${u(o.ts,"ns")}`]),n.redraw())}async step(t){let{timeline:e,rows:n}=this;if(n.
length){if(!e.matches?.size||n[this.at]?.text||!e.inspector)return this.choose((Math.max(this.at,t<0?0:-1)+t+n.length)%n.
length);this.list.hidden=!0,e.hits??=new kt(e,(await Gt(e,{codes:e.matches})).map(o=>o.number)),await e.hits.step(t),this.
said.textContent=e.hits.text}}};var ve=class{constructor(t){this.timeline=t,this.selected=null,this.asked=0;let e="Events in the selected span";this.node=
h("div",{class:"in-span",role:"region",hidden:!0,"aria-label":e});let n=t.canvas;for(let o of["pointerdown","mousedown"])
n.addEventListener(o,i=>this.press(i,o),!0)}press(t,e){if(!t.shiftKey||t.button!==0)return;if(t.stopPropagation(),e!=="p\
ointerdown")return t.preventDefault();let n=this.timeline.timeAt(t.clientX);Jt(o=>this.preview(n,this.timeline.timeAt(o.
clientX)),o=>this.set(n,this.timeline.timeAt(o.clientX)))}preview(t,e){let{span:n}=this.timeline.data;return this.selected=
{from:Math.round(Math.max(0,Math.min(t,e))),to:Math.round(Math.min(n,Math.max(t,e)))},this.timeline.redraw(),this.selected}clear(){
this.asked++,this.selected=null,this.node.hidden=!0,this.timeline.redraw()}setEnd(t,e){let{from:n,to:o}=this.timeline,{selected:i}=this;
t==="from"?this.set(e,i&&i.to>e?i.to:o):this.set(i&&i.from<e?i.from:n,e)}async set(t,e){let{from:n,to:o}=this.preview(t,
e);if(o<=n)return this.clear();let i=++this.asked,r=await this.totals(n,o,()=>i===this.asked);r&&this.show(n,o,r)}async totals(t,e,n){
let{tiles:o,rows:i}=this.timeline,r=new Map,l=new Map,a=this.timeline.data.lanes,c=(d,p,f,m)=>{let y=d.get(p);y?(y.count+=
1,y.total+=m):d.set(p,{...f,count:1,total:m})};for(let{lane:d,depth:p}of i)for(let f of o.within(d,p,t,e)){let{ts:m,dur:y,
name:S,kind:w,op:v,count:M}=o.decoded.get(f)??await o.decode(f);if(!n())return null;for(let A=ut(m,y,0,M,t);A<M&&m[A]<e;A++){
let P=Math.min(e,m[A]+y[A])-Math.max(t,m[A]);P<0||P===0&&y[A]>0||(c(r,w[A]*2**32+S[A],{name:S[A],kind:w[A],gpu:a[d].gpu},
P),a[d].gpu&&c(l,v[A],{name:v[A]},P))}}return{byName:[...r.values()],byOp:[...l.values()]}}show(t,e,{byName:n,byOp:o}){let{
names:i,kinds:r}=this.timeline.data,l=e-t,a=d=>d.map(({name:p,kind:f,count:m,total:y})=>({name:p>=0?i[p]:"unknown",kind:f===
void 0?null:r[f].name,count:m,total:y,share:y/l})),c=(d,p,f)=>f.length?[h("h4",{},d),H(`span-${p}`,a(f),{sort:"total"})]:
[];this.node.hidden=!1,this.node.replaceChildren(h("header",{},h("h3",{},`${u(l,"ns")} selected`),h("span",{class:"said"},
`${jt(t)} to ${jt(e)}`),h("button",{type:"button",onclick:()=>this.clear()},"Clear")),...c("GPU events by operator","op",
o),...c("GPU events by name","gpu",n.filter(d=>d.gpu)),...c("CPU calls","cpu",n.filter(d=>!d.gpu))),this.node.dataset.span=
`${t} ${e}`}};var ke=1.5,ri=6;function pn(s){let t=(s.to-s.from)/Math.max(200,s.canvas.clientWidth||1e3),e=s.rows.filter(({lane:l,depth:a})=>a<
(s.folded.get(l)??1/0)),n=ke*t<s.data.resolution,o=n?s.tiles.of(e,s.from,s.to):null,i=[];s.sources=[s.data];let r=!n||!!o?.
every(l=>l!==null);return e.forEach(({lane:l,depth:a,begin:c,end:d},p)=>{let f=s.data.lanes[l].gpu?Mt:St,m=s.tops[l]+a*f+
Ot/2;if(!o?.[p])return un(s,i,0,c,d,t,m,f-1);for(let y of o[p])s.sources.push(y),un(s,i,s.sources.length-1,0,y.count,t,m,
f-1)}),s.node.dataset.complete=r?"yes":"no",i}function un(s,t,e,n,o,i,r,l){let a=s.sources[e],{ts:c,dur:d,name:p}=a,f=e?
d:a.busy,m=ke*i;for(let y=ut(c,d,n,o,s.from);y<o&&c[y]<=s.to;y++){let S=c[y],w=s.matches?.has(p[y]),v=S+d[y],M=y,A=f[y];
for(;d[y]<m&&y+1<o&&d[y+1]<m&&c[y+1]-v<m&&c[y+1]+d[y+1]-S<ri*i&&s.matches?.has(p[y+1])===w;)y++,v=c[y]+d[y],A+=f[y],d[y]>
d[M]&&(M=y);t.push([S,v,r,M,l,Math.min(1,A/Math.max(1,v-S)),e])}}var xe=3,mn=24,ai=860,li=34,_e=class{constructor(t,e={}){this.data=t,this.rows=en(t),this.names=new Set(t.names),this.tiles=
new Ct(t.tiles,()=>this.redraw()),this.numbers=nn(t.count),this.sources=[t],this.from=0,this.to=t.span,this.matches=null,
this.hits=null,this.step=null,this.inspector=null,this.span=null,this.overlays=[],this.pending=0,this.tops=[],this.height=
0,this.folded=new Map;let n=t.lanes.reduce((i,r)=>i+r.rows*(r.gpu?Mt:St)+Ot,0),o=t.lanes.findIndex(i=>!i.gpu);n>ai&&t.lanes.
forEach((i,r)=>{!i.gpu&&i.rows>(r===o?mn:xe)&&this.folded.set(r,r===o?mn:xe)}),this.chart={instance:null,draw(){}},this.
build(),this.critical=new me(t.path,this),t.tiles&&(this.inspector=new ge(this,e),this.span=new ve(this),this.node.append(
this.inspector.node,this.span.node)),this.critical.size&&this.node.append(this.critical.node),this.place()}build(){this.
lanes=h("div",{class:"lanes"}),this.canvas=h("div",{tabindex:0,role:"application","aria-label":"Timeline; press ? for it\
s keys"}),this.help=an(),this.picked=h("div",{class:"picked"},"Click a call for its details."),this.search=new be(this);
let t=(n,o,i,r)=>h("button",{type:"button",id:n,title:i,onclick:r},o),e=h("div",{class:"tools"},this.search.node,this.search.
said,h("span",{class:"said push"},"drag to move · Ctrl + wheel to zoom · Shift + drag to select a span"),t("keys","?",
"Keys (?)",()=>this.help.showModal()),t("zoom-in","+","Zoom in (w)",()=>this.zoom(.4)),t("zoom-out","−","Zoom out (s)",
()=>this.zoom(2.5)),t("zoom-all","Fit","Show the whole trace, or the chosen step",()=>this.fit()));this.node=h("div",{},
e,...["GPU","CPU"].map(n=>N(this.data.kinds.filter(o=>o.gpu===(n==="GPU")),{side:n})),h("div",{class:"timeline"},this.lanes,
h("div",{class:"frame"},this.canvas)),this.picked,this.help),this.canvas.addEventListener("keydown",n=>this.key(n)),this.
canvas.addEventListener("wheel",n=>this.wheel(n),{passive:!1})}place(){let t=this.critical.size?fe:0,e=t;this.tops=this.
data.lanes.map((n,o)=>{let i=e,r=this.folded.get(o)??n.rows;return e+=r*(n.gpu?Mt:St)+Ot,i}),this.height=e,this.lanes.replaceChildren(
...this.data.lanes.map((n,o)=>{let i=o+1<this.tops.length?this.tops[o+1]:e,r=h("div",{class:"lane",title:`${n.name}
${n.note}`},h("b",{},n.name),i-this.tops[o]>34?h("i",{},n.note):null);return r.style.height=`${i-this.tops[o]}px`,!n.gpu&&
n.rows>xe&&(r.style.cursor="pointer",r.addEventListener("click",()=>{this.folded.delete(o)||this.folded.set(o,xe),this.refold()})),
r})),this.lanes.style.paddingTop=`${Q+t}px`}refold(){this.place(),this.canvas.style.height=`${Q+this.height+pe}px`,this.
chart.draw()}get details(){if(!this.inspector)throw new Error("the page has no details");return this.inspector.details}mount(){
this.chart=B(this.canvas,Q+this.height+pe,()=>this.options(),t=>this.wire(t))}options(){return this.font=g.value("sans"),
{grid:{left:0,right:0,top:Q,bottom:pe,outerBoundsMode:"none"},tooltip:R(t=>t.seriesId==="calls"?this.tip(this.at(t.data)):
null,{trigger:"item"}),xAxis:L({type:"value",min:0,max:this.data.span,position:"top",splitNumber:7,axisLine:{show:!1},axisLabel:{
formatter:t=>this.tick(t),hideOverlap:!0,showMinLabel:!1,showMaxLabel:!1}}),yAxis:[{type:"value",min:0,max:this.height||
1,inverse:!0,show:!1},{type:"value",min:0,max:1,show:!1}],dataZoom:sn(this.from,this.to),series:[{id:"load",type:"line",
yAxisIndex:1,data:this.data.load,symbol:"none",lineStyle:{opacity:0},silent:!0,tooltip:{show:!1}},{id:"calls",type:"cust\
om",clip:!0,encode:{x:[0,1],y:-1},progressive:0,renderItem:(t,e)=>this.draw(e),data:this.visible()},cn(this)]}}wire(t){t.
on("datazoom",()=>{[this.from,this.to]=t.getModel().getComponent("xAxis").axis.scale.getExtent(),this.node.dataset.view=
`${this.from} ${this.to}`,cancelAnimationFrame(this.pending),this.pending=requestAnimationFrame(()=>this.redraw())}),t.on(
"click",e=>{e.seriesId==="calls"&&this.pick(this.at(e.data))}),t.on("dblclick",e=>{e.seriesId==="calls"&&this.fill(this.
at(e.data))})}redraw(){this.chart.instance?.setOption({series:[{id:"calls",data:this.visible()},{id:"overlay",data:Ve(this)}]})}rowAt({
lane:t,depth:e}){let n=this.data.lanes[t].gpu?Mt:St,o=Math.min(e,(this.folded.get(t)??1/0)-1);return{y:Q+this.tops[t]+o*
n+Ot/2,tall:n-1}}timeAt(t){let e=this.canvas.getBoundingClientRect().left;return this.from+(this.to-this.from)*(t-e)/this.
canvas.clientWidth}at([,,,t,,,e]){let n=this.sources[e],o=e===0;return{name:n.name[t],kind:this.data.kinds[n.kind[t]],ts:n.
ts[t],dur:n.dur[t],op:n.op[t],lane:this.data.lanes[o?n.lane[t]:n.lane],count:o?n.count[t]:1,event:this.data.tiles&&(!o||
n.count[t]===1)?o?this.numbers[t]:n.first+t:null,busy:o?n.busy[t]:n.dur[t]}}visible(){return pn(this)}draw(t){let e=t.coord(
[t.value(0),0]),n=t.coord([t.value(1),0]),o=t.value(3),i=t.value(4),r=Q+t.value(2),l=t.value(6),a=this.sources[l];if(!a||
!(o<a.name.length))return null;let c=Math.max(0,e[0]),d=Math.min(t.getWidth(),n[0]),p=Math.max(ke*.8,d-c-(d-c>4?1:0)),{names:f,
kinds:m}=this.data,y=l?1:a.count[o],S=this.matches&&!this.matches.has(a.name[o]),{color:w}=m[a.kind[o]],v=p<li||S?"":y>1?
E(y,"call"):K(f[a.name[o]]);return{type:"rect",shape:{x:c,y:r,width:p,height:i},style:{fill:W(w),opacity:S?.13:.3+.7*t.value(
5)},textConfig:{position:"insideLeft",distance:4},textContent:{type:"text",style:{text:v,fill:tt(g.color(w)),fontSize:i>
18?12:11,fontFamily:this.font,width:Math.max(1,p-8),overflow:"truncate",ellipsis:""}}}}tip({name:t,kind:e,ts:n,dur:o,count:i,
busy:r,op:l,lane:a}){let{names:c}=this.data,d=i>1;return U(G(c[t],180),[d?["merged calls, named after the longest",k.format(
i)]:null,["kind",e.name],["on",a.name],l>=0?["launched by",G(c[l],60)]:null,["start",u(n,"ns")],[d?"first to last":"dura\
tion",u(o,"ns")],d?["busy",u(r,"ns")]:null])}pick(t){this.sayOf(t),t.event===null?this.inspector?.clear():this.inspector?.
select(t.event)}sayOf({name:t,kind:e,ts:n,dur:o,count:i=1,op:r,lane:l}){Object.assign(this.picked.dataset,{ts:n,dur:o,count:i}),
this.say(t,[e.name,l.name,`start ${u(n,"ns")}`,`duration ${u(o,"ns")}`,i>1?`${k.format(i)} merged calls; zoom in to see \
each call`:null,r>=0?`launched by ${this.data.names[r]}`:null])}say(t,e){this.picked.replaceChildren(h("code",{},this.data.
names[t])," — ",e.filter(Boolean).join(" · "))}fill({ts:t,dur:e}){let n=Math.max(20,e*.06);this.show(t-n,t+e+n)}show(t,e){
let n=this.data.span,o=Math.min(n,Math.max(e-t,Ke)),i=Math.max(0,Math.min(t,n-o));this.chart.instance.dispatchAction({type:"\
dataZoom",startValue:i,endValue:Math.min(n,i+o)})}showStep(t){this.step=t,this.from=t.from,this.to=t.to,this.node.dataset.
view=`${this.from} ${this.to}`}fit(){let{from:t,to:e}=this.step??{from:0,to:this.data.span};this.show(t,e)}zoom(t,e=(this.
from+this.to)/2){this.show(e-t*(e-this.from),e+t*(this.to-e))}wheel(t){!t.ctrlKey&&!t.metaKey||(t.preventDefault(),this.
zoom(Math.exp(Math.max(-120,Math.min(120,t.deltaY))/350),this.timeAt(t.clientX)))}key(t){let e=(this.to-this.from)*.25,o={
w:()=>this.zoom(.5),s:()=>this.zoom(2),a:()=>this.show(this.from-e,this.to-e),d:()=>this.show(this.from+e,this.to+e),n:()=>this.
critical.walk(1),p:()=>this.critical.walk(-1),c:()=>this.critical.toggle(),".":()=>this.hits?.step(1),",":()=>this.hits?.
step(-1),"/":()=>this.search?.input.focus(),Backspace:()=>he(),"[":()=>this.inspector?.event&&this.span?.setEnd("from",this.
inspector.event.ts),"]":()=>this.inspector?.event&&this.span?.setEnd("to",this.inspector.event.ts+this.inspector.event.dur),
"?":()=>this.help?.showModal()}[t.key]??this.inspector?.act(t.key);t.ctrlKey||t.metaKey||t.altKey||!o||(o(),t.preventDefault())}tick(t){
let[e,n]=se("ns",Math.max(this.to,1)/2),o=(this.to-this.from)/7/n;return`${(t/n).toFixed(Math.max(0,Math.min(6,1-Math.floor(
Math.log10(o)))))} ${e}`}};function mt(s){return s.rank!==null&&s.label===String(s.rank)?`rank ${s.rank}`:s.label}function $e({job:s,many:t,ranks:e}){
if(t){let i=t.tables.find(d=>d.name==="stragglers"),r=i?.rows.find(([d])=>t.stragglers.includes(d)),[l,a,c]=["collective\
s","last","caused"].map(d=>r?.[i?.columns.findIndex(p=>p.title===d)??0]);return r?{name:`rank ${r[0]}`,text:fn(a,l,c)}:null}
let n=s?.ranks??[],o=n.reduce((i,r,l)=>r.caused>(n[i]?.caused??0)?l:i,-1);return o<0?null:{name:mt(e[o]),text:fn(n[o].last,
n[o].collectives,n[o].caused)}}var fn=(s,t,e)=>`is last in ${s} of ${E(t,"collective")}; the others wait ${u(e,"ns")}`;function Et(s){let t=s.analysis.device_use,e=o=>t.reduce((i,r)=>i+r[o],0),n=e("communication_ns")-e("exposed_communicati\
on_ns");return{window:e("window_ns"),busy:e("busy_ns"),span:e("gpu_span_ns"),hidden:n,parts:[{name:"Computing",color:4,ns:e(
"compute_ns")-n},{name:"Computing and communicating",color:3,ns:n},{name:"Exposed communication",color:2,ns:e("exposed_c\
ommunication_ns")},{name:"Copies alone",color:1,ns:e("busy_ns")-e("compute_ns")-e("exposed_communication_ns")},{name:"Id\
le",color:"line",ns:e("idle_ns")}]}}function ci(s){let t=0,e=0,n=!1;for(let i of s.analysis.kernels)i.flops===null||!i.flops_per_second||
(t+=i.flops,i.flops_share!==null&&(n=!0,e+=i.flops/i.flops_per_second*1e9*i.flops_share));let o=Et(s).window;return[t&&o?
t/s.span_ns*1e9:null,n&&o?e/o:null]}var hi=s=>`${s[0].toUpperCase()}${s.slice(1)}.`;function di(s,t){let e=Et(t),n=e.window?
1-e.busy/e.window:0,o=t.analysis.idle_causes,i=m=>o.reduce((y,S)=>y+S[m],0),r=[["before the first GPU event",i("before_f\
irst_ns")],["because launches come late",i("host_wait_ns")],["between kernels",i("kernel_wait_ns")+i("other_ns")],["afte\
r the last GPU event",i("after_last_ns")]],[l,a]=r.reduce((m,y)=>y[1]>m[1]?y:m),c=$e(s),d=s.findings?.found.find(m=>m.gain||
m.cost_ns!==null),p=e.window?`GPU idle ${u(n,"share")}${a?`, mostly ${l}`:""}`:"no GPU events";return[c&&`${c.name} ${c.
text}`,s.ranks.length>1?`${mt(t)}: ${p}`:p,d?.title].filter(m=>typeof m=="string").map(hi).join(" ")}function gn(s,t){let{
analysis:e}=t,n=Et(t),[o,i]=ci(t),r=e.iterations,l=e.serving_phases.at(-1),a=P=>(n.parts.find(ft=>ft.name===P)?.ns??0)/(n.
window||1),c=t.attributed_ns/(t.tree.total_ns||1),d=e.iteration_list.length,p=`${E(d,"step")} of ${u(r.mean_latency_ns,"\
ns")}`,f=a("Computing")+a("Computing and communicating"),m=n.parts[2].ns,y=`of ${u(n.window,"ns")}`,S=`${u(n.busy/(n.span||
1),"share")} from the first GPU event to the last`,w=i===null?"device peak unknown":`${u(i,"share")} of the peak`,v=t.gpu_events+
t.host_calls+t.runtime_calls,M=t.coverage,A=[I("Duration",u(t.span_ns,"ns"),d?p:"no steps marked"),n.window?I("GPU busy",
u(n.busy/n.window,"share"),`${u(n.busy,"ns")} ${y}; ${S}`):null,n.window?I("GPU computing",u(f,"share"),"of the duration"):
null,e.device_use.some(P=>P.communication_ns)?I("Exposed comm.",u(a("Exposed communication"),"share"),`${u(m,"ns")} of ${u(
n.hidden+m,"ns")}`):null,o!==null?I("Achieved",u(o,"flop/s"),w):null,l?.tokens_per_second?I("Tokens",`${F(l.tokens_per_second)}\
 /s`,ui(e.serving_phases)):null,I("Events",u(v,"count"),`${u(t.gpu_events,"count")} on the GPU`),M?I("Linked",u(M.linked/
(M.total||1),"share"),`of ${u(M.total,"count")} operators`):t.gpu_events?I("Attributed",u(c,"share"),"of GPU time to ope\
rators"):null];return _("overview","Overview",di(s,t),pi(s),h("div",{class:"tiles"},A))}function yn(s,t){let e=Et(t),n=t.
attributed_ns/(t.tree.total_ns||1),o=`of ${u(e.window,"ns")}${t.analysis.device_use.length>1?" on all devices":""}`;return _(
"trace","Trace",null,e.window?b("GPU time",o,Z([{name:"",parts:e.parts,whole:e.window}])):null,it([6,6],b("File",null,mi(
t)),b("Links",null,fi(t,n))))}function ui(s){return`steps: ${s.filter(e=>e.phase!=="all").map(e=>`${e.steps} ${e.phase}`).
join(", ")}`}function pi(s){let t=s.ranks.length>1,e=[...s.warnings,...s.ranks.flatMap(n=>n.analysis.damage.map(o=>t?`Ra\
nk ${n.label}: ${o}`:o))];return rt("warnings",e)}function mi(s){let{analysis:t}=s,e=[["File",s.file]];s.rank!==null&&e.
push(["Rank",String(s.rank)]);for(let[n,o]of Object.entries(t.devices)){let i=Object.entries(o.peaks).map(([r,l])=>`${r}\
 ${u(l,"flop/s")}`);e.push([`Device ${n}`,[o.name??"not named in the trace",o.known_as&&o.known_as!==o.name?`(${o.known_as}\
)`:"",o.memory_gb_s?`· peak ${[...i,u(o.memory_gb_s*1e9,"bytes/s")].join(", ")}`:"· peaks unknown"].filter(Boolean).join(
" ")])}return e.push(["Streams",String(t.streams.length)],["Operators",u(s.host_calls,"count")],["Runtime calls",s.runtime_calls?
`${u(s.runtime_calls,"count")}, ${u(t.host.runtime_ns,"ns")}`:"0"]),t.host.loading_ns&&e.push(["Data loading",u(t.host.loading_ns,
"ns")]),yt(e)}function fi(s,t){let e=s.coverage,n=[...e?.notes??[],...s.analysis.notes],o=e?[["Operators",`${u(e.linked,
"count")} of ${u(e.total,"count")} linked (${u(e.linked/(e.total||1),"share")}) by ${e.method}`],["Certain",u(e.certain,
"count")],["Unverified",`${u(e.unverified,"count")}; the structure fits, but the operators may belong to another run or \
step`],["GPU time",`${u(e.attached_ns/(e.gpu_ns||1),"share")} of ${u(e.gpu_ns,"ns")} attached to operators`]]:[["Kind","\
Kineto trace without Execution Trace"],s.gpu_events?["GPU time",`${u(t,"share")} launched by operators in the trace`]:null];
return[yt(o),rt("notes",n)]}function wn(s,t){if(!t.timeline.ts.length)return null;let e=O.timeline=new _e(t.timeline,t.analysis.
devices);e.mount();let n=u(t.timeline.resolution,"ns"),o=t.timeline.resolution?t.timeline.tiles?` Calls shorter than ${n}\
 are merged until you zoom in.`:` Calls shorter than ${n} are merged with their neighbors.`:"",i=t.timeline.hidden?` ${E(
t.timeline.hidden,"lane")} with the least time ${t.timeline.hidden===1?"is":"are"} not shown.`:"";return _("timeline","T\
imeline",`${t.gpu_events?"Streams on top, CPU threads with nested calls below. Pale blocks are merged short calls.":"CPU\
 threads with nested calls. Pale blocks are merged short calls."}${o}${i}`,b(null,null,e.node))}function bn(s){if(s.ranks.length<2)return null;let t=s.ranks.map(a=>({rank:a,use:Et(a)})),e=t.map(({rank:a,use:c},d)=>({
place:d,name:mt(a),file:a.file,span:a.span_ns,latency:a.analysis.iterations.mean_latency_ns,busy:c.window?c.busy/c.window:
null,computing:c.window?c.parts[0].ns+c.hidden:null,communication:c.hidden+c.parts[2].ns,exposed:c.parts[2].ns,idle:c.parts[4].
ns,waiting:null,events:a.gpu_events,linked:a.coverage?a.coverage.linked/(a.coverage.total||1):null})),n=Math.min(...e.map(
a=>a.communication));for(let a of e)a.waiting=a.communication-n;let o=a=>{let c=e.map(d=>d[a]).filter(d=>d!==null);return c.
length?Math.max(...c)-Math.min(...c):null},i=$e(s),r=e.reduce((a,c)=>a+c.events,0),l=Math.max(...e.map(a=>a.span));return _(
"job","Ranks","Click a bar to show that rank in the other sections.",h("div",{class:"tiles"},I("Ranks",String(e.length),
E(r,"GPU event")),I("Longest trace",u(l,"ns"),`${u(o("span"),"ns")} longer than the shortest`),I("Spread of computing",u(
o("computing"),"ns"),"between the most and the least busy rank"),i?I("Straggler",i.name,i.text):null),b("GPU time by ran\
k",null,Z(t.map(({rank:a,use:c},d)=>({name:e[d].name,parts:c.parts,whole:c.window})),{click:st})),$("Numbers by rank",null,
"ranks",e,{sort:"name",click:a=>st(a.place)}))}function vn(s,t){let e=t.analysis.kernels.map((o,i)=>({...o,kind:t.kernel_kinds[i],kernel_kind:s.gpu_kinds[t.kernel_kinds[i]].
name}));if(!e.length)return null;let n=e.filter(o=>o.intensity&&o.flops_per_second);return _("kernels","Kernels and roof\
line","Kernel throughput compared with the device's peaks. Memory bandwidth limits kernels below the slope; peak FLOP ra\
te limits kernels below the flat roof. The area of a mark is its share of the time.",n.length?bi(s,t,n):b("Roofline",null,
gt("FLOPs and bytes are unknown for all kernels: the trace has no shapes (record_shapes), or its operators only move dat\
a.")),$("Kernels by name",D(t,"kernels"),"kernels",gi(e),{sort:"total_ns",jump:yi}),$("GEMMs",D(t,"gemms")??"batch × (m,\
 k) · (k, n); rates use the time of all kernels of the operator","gemms",t.analysis.gemms,{sort:"total_ns",jump:wi}))}var Se=(s,t)=>s.
reduce((e,n)=>e+(n[t]??0),0);function At(s,t,e,n=t){let o=s.filter(l=>l[t]!==null&&l[n]),i=o.map(l=>l[e]/l[n]),r=i.reduce(
(l,a)=>l+a,0);return r?o.reduce((l,a,c)=>l+a[t]*i[c],0)/r:null}function gi(s){let t=new Map;for(let e of s){let n=`${e.device}\
 ${K(e.kernel)}`;t.set(n,[...t.get(n)??[],e])}return[...t.values()].map(e=>{if(e.length===1)return e[0];let n=Se(e,"coun\
t"),o=Se(e,"total_ns"),i=l=>[...new Set(e.map(a=>a[l]).filter(Boolean))].join(" "),r=e.filter(l=>l.intensity!==null);return{
...e[0],variants:e.length,members:e.map(l=>l.kernel),count:n,total_ns:o,mean_ns:o/n,dtype:i("dtype"),ops:i("ops"),bound:i(
"bound"),flops_per_second:At(e,"flops_per_second","flops"),operator_flops_per_second:At(e,"operator_flops_per_second","f\
lops"),flops_share:At(e,"flops_share","flops","flops_per_second"),bytes_per_second:At(e,"bytes_per_second","bytes"),most_bytes_per_second:At(
e,"most_bytes_per_second","most_bytes"),bytes_share:At(e,"bytes_share","bytes","bytes_per_second"),intensity:r.length?Se(
r,"flops")/Se(r,"bytes"):null}})}var yi=({device:s,kernel:t,dtype:e,variants:n})=>({gpu:!0,device:s,name:t,has:(o,i,r)=>!!n||
(r.dtypes[o.dtype[i]]??"")===e,orElse:{gpu:!0,device:s,name:t}}),wi=({device:s,op:t,batch:e,m:n,n:o,k:i,count:r,flops:l,
kernels:a})=>({gpu:!0,device:s,has:(c,d)=>c.flops[d]===l/r||c.flops[d]===2*e*n*o*i,fits:async(c,d)=>{let p=await de(c);return p!==
null&&a.includes(d.names[c.name])&&d.names[p.name]===t}});function bi(s,t,e){let n=t.analysis.devices[e[0].device],o=h("\
div"),i=s.gpu_kinds,r=e.filter(T=>T.device===e[0].device),a=[...new Set(r.map(T=>T.dtype))].map(T=>[T,n.peaks[T]]).filter(
T=>T[1]),c=n.memory_gb_s?n.memory_gb_s*1e9:null,d=Math.max(0,...a.map(T=>T[1])),p=r.map(T=>T.intensity),f=r.map(T=>T.flops_per_second),
m=10**Math.floor(Math.log10(Math.min(...p))),y=10**Math.ceil(Math.log10(Math.max(...p,c?3*d/c:1))),S=10**Math.floor(Math.
log10(Math.min(...f))),w=10**Math.ceil(Math.log10(Math.max(...f,d)*1.01)),v=Math.max(...r.map(T=>T.total_ns)),M=ce(r,i),
A=()=>({color:g.value("muted"),width:1.5}),P=()=>({type:"line",symbol:"none",silent:!0,lineStyle:A()});B(o,400,()=>({grid:{
left:84,right:130,top:16,bottom:46},tooltip:R(T=>{let j=T.data.row;return j?U(G(j.kernel,180),[["operators",G(j.ops,60)],
["dtype",j.dtype||"–"],["FLOP per byte",F(j.intensity)],["achieved",u(j.flops_per_second,"flop/s")],["whole operator",
u(j.operator_flops_per_second,"flop/s")],["of peak",u(j.flops_share,"share")],["memory",`${u(j.bytes_per_second,"bytes/s")}\
 (${u(j.bytes_share,"share")})`],["calls",u(j.count,"count")],["total time",u(j.total_ns,"ns")],["bound by",j.bound||"–"]]):
null}),xAxis:L({type:"log",min:m,max:y,name:"FLOP per byte",nameLocation:"middle",nameGap:28,axisLabel:{formatter:oe}}),
yAxis:L({type:"log",min:S,max:w,unit:"flop/s"}),series:[...a.map(([T,j])=>({...P(),tooltip:{show:!1},z:1,data:[...c?[[Math.
max(m,S/c),Math.max(m*c,S)],[j/c,j]]:[[m,j]],[y,j]].filter(z=>z[0]>=m),endLabel:{show:!0,formatter:`${T} ${ot(j,"flop/s")}`,
color:A().color,fontSize:11.5}})),...a.length||!c?[]:[{...P(),data:[[m,m*c],[y,y*c]]}],...M.map(({name:T,color:j})=>({name:T,
type:"scatter",z:3,symbol:at[J(j)],itemStyle:{color:g.color(j),opacity:.78,borderColor:g.value("card"),borderWidth:1},symbolSize:(z,nt)=>7+
26*Math.sqrt(nt.data.row.total_ns/v),data:r.filter(z=>z.kernel_kind===T).map(z=>({value:[z.intensity,z.flops_per_second],
row:z}))}))]}));let ft=`${n.known_as??n.name??"device"}${c?`, memory ${u(c,"bytes/s")}`:", peaks unknown"} · ${r.length}\
 of ${t.analysis.kernels.length} kernels have known FLOPs and bytes`;return b("Roofline",ft,N(M),o)}var vi=8;function Ht(s,t,e,{mark:n=null}={}){let o=h("div"),i=t.slice(0,vi);B(o,230,()=>({grid:{left:74,right:24,top:18,
bottom:26},tooltip:R(l=>U(u(l[0].value[0],"ns"),l.map(a=>[a.seriesName,u(a.value[1],e)])),{trigger:"axis"}),xAxis:L({type:"\
value",...s.step?Dt(s):{min:0},unit:"ns",axisLabel:{hideOverlap:!0}}),yAxis:L({type:"value",min:0,unit:e}),dataZoom:[{type:"\
inside",filterMode:"none"}],series:i.map((l,a)=>({name:l.title,type:"line",step:"end",showSymbol:!1,lineStyle:{width:1.4,
color:g.color(a),type:es[J(a)]},itemStyle:{color:g.color(a)},areaStyle:i.length===1?{color:g.color(a),opacity:.14}:void 0,
data:l.ts.map((c,d)=>[c,l.values[d]]),markPoint:n&&a===0?ki(n):void 0}))}));let r=t.length>i.length?` (${i.length} of ${t.
length})`:"";return h("div",{},o,N(i.map((l,a)=>({name:l.title,color:a})),{more:r}))}function ki({ts:s,value:t,name:e}){
return{symbol:"circle",symbolSize:9,data:[{coord:[s,t],name:e}],label:{show:!0,position:"left",distance:8,color:g.value(
"text"),formatter:()=>e}}}var xi=({device:s,kind:t})=>({gpu:!0,device:s,has:(e,n,o,i)=>/^mem(cpy|set)/i.test(o.names[i])&&o.names[i].toLowerCase().
includes(t.toLowerCase())}),_i=({op:s,kernels:t})=>({gpu:!1,name:s,has:(e,n)=>e.device_events[n]===t.split(" | ").length,
orElse:{gpu:!1,name:s}});function kn(s,t){let{idle_causes:e,launches:n,queues:o,copies:i,sequences:r}=t.analysis;if(!n.length&&
!e.length&&!i.length)return null;let l=d=>o.find(({device:p,stream:f})=>p===d.device&&f===d.stream),a=d=>t.counters.filter(
p=>p.kind===d),c=e.map(d=>({...l(d),...d}));return _("launches","Launches, queues, copies","Why streams wait, how long l\
aunches take, how fast copies are, and which kernels operators launch in sequence.",$("Why streams wait",`"between kerne\
ls" covers gaps below ${t.analysis.consecutive_kernel_delay_ns/1e3} µs; "before first" and "after last" cover idle time \
before the first and after the last GPU event; a queue of 1,024 launches blocks the CPU`,"idle_causes",c,{sort:"idle_ns",
jump:d=>({...Kt(d),gap:!0})}),a("queue").length?b("Launches in the queue","launched, not yet started",Ht(t,a("queue"),"")):
null,$("Launches",null,"launches",n,{sort:"count"}),i.length?b("Copies and memsets",null,a("bandwidth").length?Ht(t,a("b\
andwidth"),"bytes/s"):null,H("copies",i,{sort:"bytes",jump:xi})):null,$("Sequences of kernels","kernels that an operator\
 launches repeatedly in the same order; candidates for fusion","sequences",r.filter(d=>d.count>1),{sort:"gpu_ns",jump:_i}))}var $i={"allocator events":"allocator events (profile_memory)","tensors of the ET":"tensors of the Execution Trace, from\
 the call that creates a storage to the last use"};function xn(s,t){let{memory:e,memory_holders:n,memory_outliving:o}=t.
analysis;if(!e.length)return null;let i=e.filter(r=>r.peak_bytes>=.01*e[0].peak_bytes);return _("memory","Memory",`Alloc\
ated memory, its holders at the peak, and blocks that outlive their step. Source: ${$i[e[0].source]}.`,...i.map(r=>Si(t,
r,n)),$("Devices",null,"memory",e,{sort:"peak_bytes",filter:!1,jump:r=>_n(t,r)}),$("Blocks that outlive their step","all\
ocated in a step and still held at its end; summed over all steps","memory_outliving",o,{sort:"bytes",jump:({operator:r})=>({
gpu:!1,name:r})}))}function Si(s,t,e){let n=e.filter(a=>a.device===t.device),o={};for(let a of n)o[a.category]=(o[a.category]??
0)+a.bytes;let i=Object.keys(o).sort((a,c)=>o[c]-o[a]),r={ts:t.peak_ns-s.start_ns,value:t.peak_bytes,name:`peak ${u(t.peak_bytes,
"bytes")}`},l=a=>a.device===t.number&&["allocated","reserved"].includes(a.kind);return b(`Allocated on ${t.device}`,`pea\
k ${u(t.peak_bytes,"bytes")} at ${u(r.ts,"ns")}`,Ht(s,s.counters.filter(l),"bytes",{mark:r.ts>=0?r:null}),h("h3",{},"Hel\
d at the peak"),Z([{name:"",whole:t.peak_bytes,parts:i.map((a,c)=>({name:a,color:c,ns:o[a]}))}],{unit:"bytes"}),H(`memor\
y_holders ${t.device}`,n.map(a=>({...a,modules:a.modules.replaceAll("nn.Module: ",""),share:a.bytes/(t.peak_bytes||1)})),
{sort:"bytes",jump:a=>Mi(a)??_n(s,t)}))}var _n=(s,{peak_ns:t})=>({from:t-s.start_ns,to:t-s.start_ns}),Mi=({operator:s,source:t})=>O.
timeline?.names.has(ae(s))?{...t?$t(t,!1):{gpu:!1},name:s,orElse:{gpu:!1,name:s}}:null;function $n(s,t){let{operators:e,modules:n}=t.analysis;if(!e.length&&!n.length)return null;let o=e.some(i=>i.device_total_ns);
return _("operators","Operators and modules","Self time excludes nested calls, and total time includes them. Nested call\
s with the same name count once.",$("By operator",D(t,"operators"),"operators",e,{sort:o?"device_self_ns":"self_ns",jump:({
op:i})=>({gpu:!1,name:i})}),$("By module class",D(t,"modules")??"each row is the sum over all modules of one class in th\
e same parent module","modules",n,{sort:"",jump:Oi}))}function Oi({path:s,device_total_ns:t}){let e=s.split(" / ").at(-1),
n=new Map,o=new Map,i=(a,c,d)=>{let p=et(_t(a,c));return p===s&&Rt(d)===e||(p?`${p} / ${Rt(d)}`:Rt(d))===s},r=(a,c)=>`${et(
(a.modules[c]??"").split(" / "))} / `.startsWith(`${s} / `),l=(a,c,d)=>{let p=a.get(c)??d();return a.set(c,p),p};return{
gpu:!1,has:({path:a},c,d,p)=>l(n,`${a[c]} ${p}`,()=>i(d,a[c],d.names[p])),orElse:{gpu:t>0,has:({module:a},c,d)=>l(o,a[c],
()=>r(d,a[c]))}}}function Sn(s,t){let e=t.path_rows;if(!e?.length||typeof e=="string")return null;let n=e.reduce((l,a)=>l+a.ns,0),o=new Map;
for(let{kind:l,ns:a}of e)o.set(l,(o.get(l)??0)+a);let i={...qe},r=[...o].filter(([,l])=>l>0).sort((l,a)=>a[1]-l[1]);return r.
forEach(([l],a)=>i[l]??=[1,3,5,6,7,8,9][a%7]),_("path","Critical path",`The longest path of the replay: making anything \
else faster saves no time. Rows sum to ${u(n,"ns")}${t.step?", the share of this step":""}.`,b("By kind",null,Z([{name:"",
whole:n,parts:r.map(([l,a])=>({name:l,color:i[l],ns:a}))}])),$("By kind, kernel, operator, module and line",null,"critic\
al_path",e.map(l=>({...l,share:l.ns/(n||1)})),{sort:"ns",jump:Ci}))}function Ci({id:s,start:t,end:e}){let n=t===null?null:
{from:t,to:e};return s<0?n:{...ht([s]),orElse:n}}var Lt=16,Pt=14,Mn=26,Ei=38,Ai=100,Me=[{name:"Computing",color:4},{name:"Copy",color:9},{name:"Communication",color:2},{
name:"CPU call",color:0}],Je={name:"Waiting for the last rank to arrive",color:1},qt={name:"Collective, all ranks presen\
t",color:3},Oe=class{constructor(t,e,n){this.job=t,this.labels=e,this.iterations=n,this.at=-1,this.from=0,this.to=t.span,
this.width=0,this.tops=[];let o=Ei;for(let l of t.ranks)this.tops.push(o),o+=l.lanes.length*Lt+Pt+Mn;this.height=o;let i="\
Ranks on one clock; keys w and s zoom, a and d move, n and p go to the next and previous collective",r="Press n or p, or\
 a button, for the next or previous collective.";this.canvas=h("canvas",{tabindex:0,role:"img","aria-label":i}),this.picked=
h("div",{class:"picked",role:"status"},r),this.hover=h("div",{class:"hover",hidden:!0}),this.build(),this.whole={from:0,
to:t.span},this.view(0,t.span)}build(){let t=(l,a,c)=>h("button",{type:"button",title:a,onclick:c},l),e=this.iterations.
length?h("select",{"aria-label":"Step",onchange:l=>this.step(l.target.value)},h("option",{value:""},"All steps"),this.iterations.
map((l,a)=>h("option",{value:a},l.name))):null;this.steps=e;let n=[t("‹ Collective","Previous collective (p)",()=>this.
go(this.at-1)),t("Collective ›","Next collective (n)",()=>this.go(this.at+1)),t("Longest wait","The collective with th\
e longest total wait",()=>this.go(this.worst()))],o=[t("‹","Previous step",()=>this.turn(-1)),e,t("›","Next step",()=>this.
turn(1))],i=h("div",{class:"tools"},this.job.collectives.length?n:null,e?o:null,h("span",{class:"push"}),t("+","Zoom in \
(w)",()=>this.zoom(.4)),t("−","Zoom out (s)",()=>this.zoom(2.5)),t("Fit","Show the whole job, or the chosen step",()=>this.
view(this.whole.from,this.whole.to))),r=h("div",{class:"lanes ranks"},this.job.ranks.map((l,a)=>{let c=l.lanes.map(p=>h(
"i",{},p)),d=h("div",{class:"lane"},h("b",{},this.labels[a]),c);return d.style.top=`${this.tops[a]-Lt}px`,d}));this.node=
h("div",{},i,h("div",{class:"timeline"},r,h("div",{class:"frame"},this.canvas,this.hover)),this.picked),this.canvas.addEventListener(
"keydown",l=>this.key(l)),this.canvas.addEventListener("wheel",l=>this.wheel(l),{passive:!1}),this.canvas.addEventListener(
"pointerdown",l=>this.grab(l)),this.canvas.addEventListener("pointermove",l=>this.point(l)),this.canvas.addEventListener(
"pointerleave",()=>this.hover.hidden=!0),this.canvas.addEventListener("click",l=>this.click(l)),new ResizeObserver(()=>this.
draw()).observe(this.canvas.parentNode)}view(t,e){let n=Math.min(Math.max(e-t,Ai),this.job.span||1);this.from=Math.min(Math.
max(0,t),Math.max(0,this.job.span-n)),this.to=this.from+n,this.canvas.dataset.view=`${this.from} ${this.to}`,this.draw()}zoom(t,e=(this.
from+this.to)/2){this.view(e-(e-this.from)*t,e+(this.to-e)*t)}go(t){let e=this.job.collectives;if(!e.length)return;this.
at=(t+e.length)%e.length;let n=e[this.at],o=Math.min(...n.start),i=Math.max(...n.end);this.view(o-(i-o)*.6,i+(i-o)*.6),this.
describe(n)}worst(){let t=e=>(e.wait??[]).reduce((n,o)=>n+o,0);return this.job.collectives.reduce((e,n,o,i)=>t(n)>t(i[e])?
o:e,0)}step(t){let e=this.iterations[Number(t)];e?this.view(e.start,e.end):this.view(0,this.job.span)}turn(t){let e=this.
iterations.length,n=this.steps.value===""?t>0?-1:e:Number(this.steps.value);this.steps.value=(n+t+e)%e,this.step(this.steps.
value)}describe(t){let e=(t.wait??[]).map((r,l)=>({wait:r,name:this.labels[t.members[l]]})).filter(({wait:r})=>r>0);e.sort(
(r,l)=>l.wait-r.wait);let n=e.slice(0,8).map(({wait:r,name:l})=>`${l} waits ${u(r,"ns")}`),o=n.length?`; ${n.join(", ")}${e.
length>n.length?", …":""}`:"",i=`${k.format(this.at+1)} of ${k.format(this.job.collectives.length)}`;this.picked.dataset.
at=this.at,this.picked.replaceChildren(h("code",{},`${t.kind}${t.bytes>=0?` ${u(t.bytes,"bytes")}`:""}`),` ${t.group?`gr\
oup ${t.group}, `:""}${t.members.length} ranks, ${i}`,t.last===null?" · its ranks do not have to wait for each other":`\
 · ${this.labels[t.last]} is the last to arrive${o}`)}key(t){let e=(this.to-this.from)/5,n={w:()=>this.zoom(.6),s:()=>this.
zoom(1/.6),a:()=>this.view(this.from-e,this.to-e),d:()=>this.view(this.from+e,this.to+e),n:()=>this.go(this.at+1),p:()=>this.
go(this.at-1),Escape:()=>this.view(0,this.job.span)}[{ArrowLeft:"a",ArrowRight:"d","+":"w","-":"s"}[t.key]??t.key];!n||t.
ctrlKey||t.metaKey||t.altKey||(t.preventDefault(),n())}wheel(t){t.ctrlKey&&(t.preventDefault(),this.zoom(Math.exp(Math.max(
-1,Math.min(1,t.deltaY/200))),this.time(t.offsetX)))}grab(t){let{from:e,to:n}=this;Jt(o=>{let i=(t.clientX-o.clientX)/this.
width*(n-e);this.view(e+i,n+i)})}time(t){return this.from+t/this.width*(this.to-this.from)}x(t){return(t-this.from)/(this.
to-this.from)*this.width}bar(t){return this.tops[t]+this.job.ranks[t].lanes.length*Lt}collectiveAt(t,e){let n=this.time(
t),o=2*(this.to-this.from)/this.width,i=(r,l,a)=>e>=l&&e<l+Pt&&r.start[a]-o<=n&&n<=r.end[a]+o;return this.job.collectives.
findIndex(r=>r.members.some((l,a)=>i(r,this.bar(l),a)))}click(t){let e=this.collectiveAt(t.offsetX,t.offsetY);e<0||(this.
at=e,this.draw(),this.describe(this.job.collectives[e]))}point(t){let{offsetX:e,offsetY:n}=t,o=this.collectiveAt(e,n),i=o>=
0?this.collective(this.job.collectives[o]):this.blockAt(e,n);this.hover.hidden=!i,i&&(this.hover.replaceChildren(U(i[0],
i[1].slice(0,16))),this.hover.style.left=`${Math.min(e+14,Math.max(0,this.width-this.hover.offsetWidth-4))}px`,this.hover.
style.top=`${n+14}px`)}collective(t){let e=o=>t.wait?`, waits ${u(t.wait[o],"ns")}`:"",n=(o,i)=>[this.labels[o],u(t.end[i]-
t.start[i],"ns")+e(i)];return[t.kind,t.members.map(n)]}blockAt(t,e){let n=this.tops.findLastIndex(c=>e>=c),o=this.job.ranks[n],
i=o?Math.floor((e-this.tops[n])/Lt):-1,r=this.time(t);if(!o||i<0||i>=o.lanes.length)return null;let l=o.ts.findIndex((c,d)=>o.
lane[d]===i&&c<=r&&r<=c+o.dur[d]);if(l<0)return null;let a=o.count[l];return[this.job.names[o.name[l]],[[this.labels[n],
o.lanes[i]],["time",u(o.dur[l],"ns")],a>1?["together",`${k.format(a)} events, named after the longest`]:["kind",Me[o.kind[l]].
name]]]}draw(){let t=this.canvas.parentNode?.clientWidth;if(!t)return;this.width=t;let e=devicePixelRatio||1;this.canvas.
width=t*e,this.canvas.height=this.height*e,this.canvas.style.width=`${t}px`,this.canvas.style.height=`${this.height}px`;
let n=this.canvas.getContext("2d");n.scale(e,e),this.drawAxis(n),this.job.ranks.forEach((i,r)=>this.drawRank(n,i,r));let o=this.
job.collectives.map((i,r)=>({one:i,at:r})).filter(({one:i})=>Math.min(...i.start)<=this.to&&Math.max(...i.end)>=this.from);
for(let{one:i,at:r}of o)this.drawJoint(n,i,r===this.at);for(let{one:i,at:r}of o)this.drawBars(n,i,r===this.at)}drawAxis(t){
let e=this.to-this.from,n=e/Math.max(2,this.width/130),o=10**Math.floor(Math.log10(n)),i=[1,2,5,10].map(r=>r*o).find(r=>r>=
n)??o;t.font=`12px ${g.value("sans")}`;for(let r=Math.ceil(this.from/i)*i;r<=this.to;r+=i)t.fillStyle=g.value("line"),t.
fillRect(this.x(r),0,1,this.height),t.fillStyle=g.value("muted"),t.fillText(ot(r,"ns"),this.x(r)+4,13)}drawRank(t,e,n){let o=this.
tops[n];t.fillStyle=g.value("line"),t.fillRect(0,o-Mn+8,this.width,1);let i=Me.map(({color:r})=>Qt(t,r));for(let r=0;r<e.
ts.length;r++){let l=this.x(e.ts[r]),a=this.x(e.ts[r]+e.dur[r]);a<0||l>this.width||(t.fillStyle=i[e.kind[r]],t.fillRect(
Math.max(-1,l),o+e.lane[r]*Lt+1,Math.max(1,Math.min(a,this.width+1)-Math.max(-1,l)),Lt-3))}}drawJoint(t,e,n){t.fillStyle=
g.color(qt.color),t.strokeStyle=n?g.value("text"):g.color(qt.color),t.lineWidth=n?1.5:.75;for(let o=0;o+1<e.members.length;o++){
let i=this.bar(e.members[o])+Pt-2,r=this.bar(e.members[o+1])+1;t.globalAlpha=n?.3:.14,t.beginPath(),t.moveTo(this.x(e.start[o]),
i),t.lineTo(this.x(e.end[o]),i),t.lineTo(this.x(e.end[o+1]),r),t.lineTo(this.x(e.start[o+1]),r),t.closePath(),t.fill(),t.
globalAlpha=n?1:.5,t.stroke()}t.globalAlpha=1}drawBars(t,e,n){e.members.forEach((o,i)=>{let r=this.bar(o)+1,l=this.x(e.start[i]),
a=Math.max(l+1,this.x(e.end[i])),c=e.wait?Math.min(a,this.x(e.start[i]+e.wait[i])):l;t.fillStyle=Qt(t,Je.color),t.fillRect(
l,r,c-l,Pt-3),t.fillStyle=Qt(t,qt.color),t.fillRect(c,r,a-c,Pt-3),e.last===o&&(t.fillStyle=g.value("text"),t.beginPath(),
t.moveTo(l-5,r-1),t.lineTo(l+5,r-1),t.lineTo(l,r+6),t.fill()),n&&(t.strokeStyle=g.value("text"),t.lineWidth=1.5,t.strokeRect(
l,r,a-l,Pt-3))})}};function On(s){let t=s.job;if(!t)return null;let e=s.ranks.map(mt),n=t.ranks[0].begin-t.ranks[0].first,o=s.ranks[0].analysis.
iteration_list.map(m=>({name:m.name,start:m.start+n,end:m.end+n})),i=new Oe(t,e,o),r=t.ranks.map((m,y)=>({...m,at:y,label:e[y]})),
l=t.collectives.map((m,y)=>({at:y,kind:m.kind,group:m.group,bytes:m.bytes<0?null:m.bytes,start:Math.min(...m.start),length:Math.
max(...m.end)-Math.min(...m.start),waited:m.wait?.reduce((S,w)=>S+w,0)??null,longest:m.wait?Math.max(...m.wait):null,last:m.
last===null?null:e[m.last]}));if(s.ranks[0].step&&o.length){let{start:m,end:y}=o[0];i.whole={from:m,to:y},i.view(m,y)}ie(
i);let a=Me.filter((m,y)=>t.ranks.some(S=>S.kind.includes(y))),c=m=>{i.node.scrollIntoView({block:"nearest"}),i.go(m.at)},
d=r.some(m=>m.offset!==null)?"Clocks are aligned by collectives that end on all ranks at the same time.":"No collective \
connects the ranks, so the clocks are as recorded.",p=[t.left_out?`${E(t.left_out,"collective")} with the shortest waits\
 ${t.left_out===1?"is":"are"} not shown`:null,t.unmatched?`${E(t.unmatched,"collective")} ${t.unmatched===1?"differs":"d\
iffer"} between the ranks of the group`:null].filter(Boolean),f=s.many?`Streams of ${t.ranks.length} of ${k.format(s.many.
numbers.length)} ranks,`:"Streams of all ranks,";return _("axis","Ranks on one clock",`${f} with their collectives below\
. A triangle marks the rank that arrived last. ${d}`,b(null,null,N([...a,qt,Je]),i.node),$("Collectives",p.join("; ")||"\
click a row to show it above","collectives",l,{sort:"waited",click:c}),$("Who waits for whom",null,"waits",r,{sort:"caus\
ed",filter:!1,click:m=>st(m.at)}))}var Li=200;function Cn(s,t){let{sources:e,phases:n}=t.analysis;if(!e.length&&!n.some(r=>r.phase!=="not known"))return null;
let o=e.some(r=>r.device_self_ns),i=o?"device_self_ns":"host_ns";return _("source","Source",e.length?"GPU work is assign\
ed to the innermost line of your code that called it, and backward work to the line of the forward operator.":null,e.length?
Ti(e,i,D(t,"sources")):null,$("By source line",D(t,"sources"),"sources",e.map(r=>({...r,place:`${r.file}:${r.line}`,remark:[
r.own?"":"library code",r.fused?`${r.fused} fused`:""].filter(Boolean).join(", ")})),{sort:i,jump:En}),$("By phase",null,
"phases",n,{sort:"",filter:!1,jump:Pi}))}var En=({place:s,device_self_ns:t})=>$t(s,t>0),Pi=({phase:s,launches:t})=>({gpu:t>
0,has:(e,n,o)=>(o.phases[e.phase[n]]||"not known")===s});function Ti(s,t,e){let n=new Map;for(let d of s)d[t]>0&&n.set(d.
file,[...n.get(d.file)??[],d]);let o=d=>d.reduce((p,f)=>p+f[t],0),i=Math.max(...s.map(d=>d[t]),1),r=[...n].sort((d,p)=>o(
p[1])-o(d[1])),l=h("div",{class:"files"}),a=h("input",{type:"search",placeholder:"Search files and functions…","aria-l\
abel":"Search files"}),c=()=>{let d=a.value.toLowerCase(),p=Li;l.replaceChildren();for(let[f,m]of r){let y=f.toLowerCase().
includes(d),S=m.filter(v=>y||v.function.toLowerCase().includes(d));if(!S.length||p<=0)continue;let w=S.sort((v,M)=>v.line-
M.line).slice(0,p);p-=w.length,l.append(h("h4",{},h("code",{},f)," ",X(u(o(m),"ns"))),...w.map(v=>{let M=h("span",{class:"\
heat"}),A=v[t]/i;return M.style.width=`${(100*A).toFixed(2)}%`,h("button",{type:"button",class:"line","data-line":`${f}:${v.
line}`,title:`${f}:${v.line} ${v.function}`,onclick:P=>xt(En({...v,place:`${f}:${v.line}`}),P.currentTarget)},M,h("span",
{class:"number"},String(v.line)),h("code",{},v.function),h("span",{class:"push"},u(v[t],"ns")))}))}};return a.addEventListener(
"input",c),c(),b("Lines by file",e,a,l)}var Ni=[gn,Xs,wn,ue,bn,On,Sn,Zs,yn,Ns,$n,Cn,Ds,vn,Ks,kn,xn,Is,tn],An=0;async function Ye(s,t=null){let{report:e}=O,n=++An,
o=e.ranks[s],i=t===null?null:o.steps[t],r=i?await Rs(e,i):e;if(typeof o.path_rows=="string"&&(o.path_rows=await vt(o.path_rows)),
n!==An)return;let l=r.ranks[s];for(let c of V)c.instance?.dispose();V.clear(),cs(),e.difference||ls(o.analysis.kernel_labels);
let a=e.difference?Gs:Ni;C("sections").replaceChildren(...a.map(c=>c(r,l)).filter(Boolean)),ds(),i&&O.timeline?.showStep(
i);for(let c of V)c.draw();C("subtitle").textContent=[...new Set(Object.values(l.analysis.devices).map(c=>c.name??"unnam\
ed device")),...i?[`only ${i.name}`]:[]].join(", "),ji(),Xe(),document.documentElement.dataset.step=i?String(i.number):""}
var Ze=null;function ji(){Ze?.disconnect();let s=new Set;Ze=new IntersectionObserver(t=>{for(let n of t)n.isIntersecting?
s.add(n.target):s.delete(n.target);let e=[...document.querySelectorAll("section")].find(n=>s.has(n));ms(e?.id)},{rootMargin:"\
-70px 0px -55% 0px"});for(let t of document.querySelectorAll("section"))Ze.observe(t)}var Ln={auto:"◐ Auto",light:"☀ L\
ight",dark:"☾ Dark"};function Xt(s){g.choice=s,g.apply(),C("theme").textContent=Ln[s];for(let t of V)t.draw()}function Ii(){
document.documentElement.classList.add("paper"),g.paper=!0,Xt(g.choice);for(let s of bt)s();for(let s of document.querySelectorAll(
"details.more, .finding details"))s.open=!0}function Ri(){document.documentElement.classList.remove("paper"),g.paper=!1,
Xt(g.choice);for(let s of bt)s()}async function Ui(){O.report=JSON.parse(C("report").textContent),O.draw=Ye;let{report:s}=O;
ps(),addEventListener("hashchange",Xe),C("title").textContent=s.title,C("footer").textContent=`etplus ${s.version} · tim\
es include profiler overhead · charts by Apache ECharts`;let t=s.ranks.length>1;C("rank-pick").hidden=!t,C("rank").append(
...s.ranks.map((o,i)=>h("option",{value:i},o.label))),C("rank").addEventListener("change",()=>st(Number(C("rank").value))),
C("step").addEventListener("change",()=>Ye(Number(C("rank").value),C("step").value===""?null:Number(C("step").value))),Be(
s.ranks[0]);let e=Object.keys(Ln);C("theme").addEventListener("click",()=>Xt(e[(e.indexOf(g.choice)+1)%e.length])),g.system.
addEventListener("change",()=>g.choice==="auto"&&Xt("auto")),addEventListener("beforeprint",Ii),addEventListener("afterp\
rint",Ri);let n=0;addEventListener("resize",()=>{clearTimeout(n),n=window.setTimeout(()=>{for(let o of V)o.instance?.resize()},
120)}),Xt("auto"),await Ye(0),document.documentElement.dataset.ready="yes"}Ui();})();

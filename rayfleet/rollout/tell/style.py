"""The looks of the page, and the little script that it can do without.

BASE is what the page of dashboards has in common with it.
"""

from __future__ import annotations

BASE = """
:root{color-scheme:light dark;--bg:#f4f6f8;--card:#fff;--line:#dce2e8;--soft:#eef1f5;
--text:#17212b;--mute:#566371;--link:#0b5cad;--good:#11703c;--goodbg:#dcf3e4;--bad:#b3202c;
--badbg:#fde4e4;--warn:#845300;--warnbg:#fdeecb;--back:#92268f;--backbg:#f8e2f6;--busy:#0b5cad;
--busybg:#dfecfa;--grid:#e3e8ee;--label:13.5rem;
--a1:#5d769b;--a2:#4f6483;--a3:#3c5070;--b1:#a4670e;--b2:#98560a;--b3:#844606;--c1:#0c7970;
--d1:#2976ab;--e1:#7a64ce;--e2:#6850bd;--e3:#5641a2;--f1:#677480;--rb:#a73ba3;--rb2:#8b2b88;
--fail:#c82631;--unsure:#b98600}
@media(prefers-color-scheme:dark){:root{--bg:#0f141a;--card:#171e26;--line:#2a3440;--soft:#1f2832;
--text:#e4e9ef;--mute:#9ba8b6;--link:#79b8ff;--good:#7ee2a5;--goodbg:#123624;--bad:#ff9ea2;
--badbg:#48191d;--warn:#f7cd74;--warnbg:#40310c;--back:#f0a6ec;--backbg:#411a40;--busy:#8cc4ff;
--busybg:#142f4d;--grid:#26303b;
--a1:#5976a2;--a2:#586f93;--a3:#52698d;--b1:#a16a17;--b2:#a05f11;--b3:#9d560d;--c1:#148077;
--d1:#3379ac;--e1:#7b63d2;--e2:#745dc7;--e3:#6e59b8;--f1:#697581;--rb:#b447b0;--rb2:#a43da1;
--fail:#d93641;--unsure:#c99a1a}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--text);line-height:1.5;-webkit-text-size-adjust:100%;
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif}
main{max-width:80rem;margin:0 auto;padding:1.5rem 1.25rem 4rem}
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
h1{font-size:1.55rem;line-height:1.25;margin:.1rem 0 .4rem;letter-spacing:-.01em;
overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:0 0 .7rem}h2 small{color:var(--mute);font-weight:400}
p{margin:.3rem 0}ul,ol{margin:0;padding-left:1.1rem}
code,pre{font:.86em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;
overflow-wrap:anywhere}
.eyebrow,.when{color:var(--mute);margin:0}
.eyebrow{font-size:.85rem}
.paused{color:var(--warn);font-weight:600}
.result{display:inline-block;font-size:.95rem;letter-spacing:0;font-weight:650;
padding:.12rem .65rem;border-radius:1rem;vertical-align:.16em}
.good{color:var(--good);background:var(--goodbg)}.bad{color:var(--bad);background:var(--badbg)}
.warn{color:var(--warn);background:var(--warnbg)}.back{color:var(--back);background:var(--backbg)}
.busy{color:var(--busy);background:var(--busybg)}.idle{color:var(--mute);background:var(--soft)}
td.bad{background:none}
.pill{display:inline-block;font-size:.8rem;line-height:1.35;padding:.08rem .5rem;
border-radius:.7rem;font-weight:550;white-space:nowrap}
.chips{list-style:none;display:flex;flex-wrap:wrap;gap:.5rem 1.1rem;padding:0;margin:.9rem 0 0}
.chips li{display:flex;align-items:center;gap:.4rem}.chips b{font-size:1.35rem;line-height:1}
"""

STYLE = (
    BASE
    + """
section{background:var(--card);border:1px solid var(--line);border-radius:.6rem;
padding:1.1rem 1.2rem;margin-top:1.2rem}
.problems{background:none;border:0;padding:0}
article{background:var(--card);border:1px solid var(--line);border-left:4px solid var(--fail);
border-radius:.45rem;padding:.75rem 1rem;margin:.6rem 0;color:var(--text)}
article.returned{border-left-color:var(--rb)}
article h3{font-size:1rem;margin:0}article .step{color:var(--mute);font-weight:400}
article pre{margin:.4rem 0;padding:.5rem .7rem;background:var(--soft);border-radius:.35rem;
white-space:pre-wrap;max-height:16rem;overflow:auto}
.next{display:flex;align-items:baseline;gap:.5rem;flex-wrap:wrap}
.next code{font-weight:600}.tag{color:var(--mute);font-size:.85rem}
button{font:inherit;font-size:.8rem;color:var(--link);background:none;border:1px solid var(--line);
border-radius:.35rem;padding:.05rem .5rem;cursor:pointer}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem .95rem;padding:0;margin:0 0 .9rem;
font-size:.82rem;color:var(--mute)}
.legend li{display:flex;align-items:center;gap:.35rem}
.key{display:inline-block;width:1rem;height:.75rem;border-radius:2px;text-decoration:none;
vertical-align:-.05rem}
td .key{margin-right:.45rem}
.chart{position:relative}
.axis{display:grid;grid-template-columns:var(--label) 1fr;font-size:.75rem;color:var(--mute);
position:sticky;top:0;background:var(--card);z-index:3;border-bottom:1px solid var(--line)}
.ticks{position:relative;height:1.45rem}
.ticks i{position:absolute;font-style:normal;bottom:0;height:.35rem;
border-left:1px solid var(--mute)}
.ticks b{position:absolute;bottom:.3rem;left:0;transform:translateX(-50%);font-weight:400}
.utc{padding:.15rem 0 0;text-align:right;padding-right:.6rem}
.grid{position:absolute;left:var(--label);right:0;top:1.45rem;bottom:0;pointer-events:none}
.grid i{position:absolute;top:0;bottom:0;border-left:1px solid var(--grid)}
.grid u{position:absolute;top:0;bottom:0;border:1px dashed var(--mute);border-width:0 1px;
text-decoration:none;background:repeating-linear-gradient(135deg,var(--soft) 0 5px,
transparent 5px 10px)}
.grid u b{position:absolute;top:.5rem;left:50%;writing-mode:vertical-rl;font-size:.75rem;
font-weight:400;color:var(--mute);transform:translateX(-50%);background:var(--card);
padding:.2rem 0;white-space:nowrap}
.wave{margin-top:.35rem}
summary{cursor:pointer;list-style:none}summary::-webkit-details-marker{display:none}
.wave>summary,.lane>summary{display:grid;grid-template-columns:var(--label) 1fr;
align-items:center;border-radius:.3rem;position:relative}
.wave>summary{padding:.3rem 0;margin-top:.5rem}
.wave>summary .name{font-size:.9rem}.wave>summary small{display:block;color:var(--mute)}
.wave>summary strong::before,section>details>summary h2::before{content:"";display:inline-block;
width:0;border:.32rem solid transparent;border-left-color:var(--mute);border-right:0;
margin-right:.45rem;vertical-align:.02rem;transition:transform .12s}
.wave[open]>summary strong::before,section>details[open]>summary h2::before{
transform:rotate(90deg)}
.lane>summary:hover{background:var(--soft)}
.lane[open]>summary{background:var(--soft)}
:focus-visible{outline:2px solid var(--link);outline-offset:1px}
.lane .name{display:flex;align-items:center;justify-content:space-between;gap:.4rem;
padding:0 .6rem 0 .35rem;min-width:0}
.who{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;min-width:0}
.lane .pill{flex:none;font-size:.74rem}
.track{position:relative;display:block;height:1.7rem}
.track i{position:absolute;top:.25rem;bottom:.25rem;min-width:2px;font-style:normal;
font-size:.7rem;line-height:1.2rem;color:#fff;text-align:center;overflow:hidden;white-space:nowrap;
box-shadow:inset -1px 0 var(--card)}
.s0{background-color:var(--a1)}.s1{background-color:var(--a2)}.s2{background-color:var(--a3)}
.s3{background-color:var(--b1)}.s4{background-color:var(--b2)}.s5{background-color:var(--b3)}
.s6{background-color:var(--c1)}.s7{background-color:var(--d1)}.s8{background-color:var(--e1)}
.s9{background-color:var(--e2)}.s10{background-color:var(--e3)}.s11{background-color:var(--f1)}
.t{background-image:repeating-linear-gradient(90deg,#fff 0 3px,transparent 3px 6px);
background-size:100% 3px;background-repeat:no-repeat;background-position:0 100%}
.b{background-color:var(--rb);background-image:repeating-linear-gradient(135deg,
transparent 0 5px,var(--rb2) 5px 10px)}
.b.s1,.b.s3,.b.s5,.b.s7,.b.s9,.b.s11{background-color:var(--rb2);
background-image:repeating-linear-gradient(135deg,transparent 0 5px,var(--rb) 5px 10px)}
.x,.b.x{background-color:var(--fail);background-image:repeating-linear-gradient(45deg,
transparent 0 4px,#0000003d 4px 8px)}
.q{background-color:var(--unsure);background-image:radial-gradient(#00000055 1.2px,
transparent 1.4px);background-size:6px 6px}
.c{opacity:.62;background-image:repeating-linear-gradient(135deg,var(--card) 0 3px,
transparent 3px 8px)}
.track .c{border-right:3px solid var(--fail)}
.r{background-image:linear-gradient(90deg,transparent 40%,var(--card))}
.track .bake,.key.bake{border:1px dashed var(--unsure);color:var(--warn);
background:var(--warnbg)}
.track .bake{border-radius:3px;line-height:1.05rem;box-shadow:none}
.dense .track{height:1.05rem}.dense .lane{font-size:.78rem}
.dense .track i{top:.1rem;bottom:.1rem;line-height:.85rem;font-size:.62rem}
.dense .lane .pill{font-size:.66rem;padding:0 .4rem}
.dense>summary .track{height:1.7rem}.dense>summary .track i{top:.25rem;bottom:.25rem;
line-height:1.05rem;font-size:.7rem}
.rest{font-size:.82rem;color:var(--mute);margin:.3rem 0 .3rem .35rem;overflow-wrap:anywhere;
position:relative;background:var(--card)}
.inside{position:relative;background:var(--card);border:1px solid var(--line);
border-radius:.4rem;margin:.3rem 0 .7rem;padding:.7rem .9rem;display:grid;gap:1rem 2rem;
grid-template-columns:minmax(0,1.2fr) minmax(0,1fr);font-size:.85rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.32rem .7rem .32rem 0;vertical-align:top;font-weight:400;
border-bottom:1px solid var(--line);overflow-wrap:anywhere}
thead th,.inside table tr:first-child th{color:var(--mute);font-size:.8rem}
tbody th{font-weight:550}thead th{overflow-wrap:normal}.narrow{display:none}
th code{display:block;color:var(--mute);font-weight:400}
th small{font-weight:400;color:var(--mute)}td small{display:block;color:var(--mute)}
.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.clusters .wide:last-child{padding-left:1rem}
.inside td:not(:last-child){font-variant-numeric:tabular-nums;
white-space:nowrap}
.inside tr:last-child td,tbody tr:last-child>*{border-bottom:0}
dl{margin:0;display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.25rem 1.1rem;
align-content:start}
dt{color:var(--mute)}dd{margin:0;overflow-wrap:anywhere}
dd ul,dd ol{padding:0;list-style:none}
section>details>summary h2{display:inline-block;margin:0}
.scroll{margin-top:.7rem}
input{font:inherit;font-size:.9rem;color:inherit;background:var(--card);width:14rem;max-width:100%;
border:1px solid var(--line);border-radius:.35rem;padding:.2rem .6rem;margin:.7rem 0 0}
:target{scroll-margin-top:2.5rem}.lane:target>summary{outline:2px solid var(--link)}
@media(max-width:46rem){main{padding:1rem .75rem 3rem}section{padding:.9rem .8rem}
.problems{padding:0}.wide{display:none}.narrow{display:block}.grid u b,.track:empty{display:none}
.wave>summary,.lane>summary,.axis{grid-template-columns:1fr}.grid{left:0}.utc{display:none}
.ticks i:nth-child(even) b{display:none}
.lane .name{justify-content:flex-start;padding-left:0}.lane>summary{padding:.25rem 0}
.inside{grid-template-columns:minmax(0,1fr)}.chart .wave .track i{font-size:0}.facts{display:block}
.facts dd{margin-bottom:.5rem}h1{font-size:1.25rem}th,td{padding-right:.45rem}
.clusters,.jobs{font-size:.86rem}.legend{gap:.15rem .7rem}.num{white-space:normal}}
@media print{body{background:none}section{break-inside:avoid-page;border-color:#bbb}
button,input{display:none}.track i,.key,.pill,.result{print-color-adjust:exact;
-webkit-print-color-adjust:exact}}
"""
)

SCRIPT = """
"use strict";
(() => {
  const open = () => {
    const found = document.getElementById(location.hash.slice(1));
    if (!found) return;
    for (let e = found; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
    found.scrollIntoView({block: "center"});
  };
  addEventListener("hashchange", open);
  open();
  for (const code of document.querySelectorAll(".next code")) {
    if (!navigator.clipboard) break;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "copy";
    button.onclick = async () => {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "copied";
    };
    code.after(button);
  }
  for (const table of document.querySelectorAll("table.clusters, table.jobs")) {
    const rows = [...table.tBodies[0].rows];
    if (rows.length < 15) continue;
    const input = document.createElement("input");
    input.type = "search";
    input.placeholder = "filter";
    input.setAttribute("aria-label", "filter the rows");
    input.oninput = () => {
      const words = input.value.toLowerCase().split(" ").filter(Boolean);
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
    };
    table.before(input);
  }
})();
"""

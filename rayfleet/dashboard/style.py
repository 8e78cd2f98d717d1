"""The looks of the page, the script that keeps it fresh, and the one that names Ray's tabs."""

from __future__ import annotations

from rayfleet.rollout.tell.style import BASE

STYLE = (
    BASE
    + """
main{max-width:62rem}
section{background:var(--card);border:1px solid var(--line);border-radius:.6rem;
padding:.4rem 1.2rem;margin-top:1.2rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.7rem 1.4rem .7rem 0;vertical-align:baseline;font-weight:400;
border-bottom:1px solid var(--line)}
th:last-child,td:last-child{padding-right:0}
thead th{color:var(--mute);font-size:.8rem;padding-block:.5rem}
tbody tr:last-child>*{border-bottom:0}
td{font-variant-numeric:tabular-nums;white-space:nowrap}
tbody th{width:99%}
tbody th a{font-weight:600;font-size:1.05rem;overflow-wrap:anywhere}
tbody th a::after{content:"\\00a0\\2192";font-weight:400;color:var(--mute)}
td:last-child,.mute{color:var(--mute)}
.trouble{font-size:.86rem;margin-top:.15rem;overflow-wrap:anywhere}
.bad-row .trouble p:first-child{color:var(--bad)}.warn-row .trouble p:first-child{color:var(--warn)}
.trouble p{margin:.1rem 0}
.next{color:var(--mute)}.next code{color:var(--text)}
.note{background:var(--badbg);color:var(--bad);border-radius:.45rem;padding:.6rem .9rem;
margin:.9rem 0 0}
.stale #clusters{opacity:.55}
:focus-visible{outline:2px solid var(--link);outline-offset:2px;border-radius:2px}
@media(max-width:40rem){main{padding:1rem .75rem 3rem}h1{font-size:1.35rem}
section{padding:0 .9rem}thead{position:absolute;clip-path:inset(50%)}
tbody tr{display:flex;flex-wrap:wrap;align-items:center;gap:.15rem .9rem;padding:.75rem 0;
border-bottom:1px solid var(--line)}
tbody tr:last-child{border-bottom:0}
tbody th{display:contents}tbody th,td{border:0;padding:0}
tbody th a{flex:1;padding:.2rem 0}
tbody tr::after{content:"";flex-basis:100%;order:1}
.trouble{order:2;flex-basis:100%}
td:nth-child(n+3){order:3;font-size:.86rem;color:var(--mute)}td:empty{display:none}
td[data-label]::before{content:attr(data-label) " "}}
"""
)

SCRIPT = """
"use strict";
(() => {
  const place = document.getElementById("clusters");
  const note = document.getElementById("note");
  let last = "";
  const tell = (text) => {
    note.hidden = !text;
    if (note.textContent !== text) note.textContent = text;
    document.body.classList.toggle("stale", Boolean(text));
  };
  const look = async () => {
    try {
      const signal = AbortSignal.timeout(10000);
      const answer = await fetch("/clusters", {cache: "no-store", signal});
      if (answer.status === 403)
        return tell("This address is of a run that has ended: open the one that was printed last.");
      if (!answer.ok) throw new Error(answer.status);
      const text = await answer.text();
      if (text !== last) {
        const focused = document.activeElement && document.activeElement.id;
        place.innerHTML = text;
        if (focused && document.getElementById(focused)) document.getElementById(focused).focus();
        last = text;
      }
      tell("");
    } catch {
      tell("invoke dashboard has ended: the links below lead nowhere. Run it again.");
    }
  };
  const again = async () => {
    if (!document.hidden) await look();
    setTimeout(again, 2000);
  };
  setTimeout(again, 1000);
  document.addEventListener("visibilitychange", () => document.hidden || look());
})();
"""

NAME_SCRIPT = """
"use strict";
(() => {
  const name = NAME;
  const put = () => {
    if (!document.title.startsWith(name)) document.title = name + " | " + document.title;
  };
  new MutationObserver(put).observe(document.head, {
    childList: true, subtree: true, characterData: true,
  });
  put();
})();
"""

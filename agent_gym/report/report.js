"use strict";
// Tooltips of tokens: id, log-probability, advantage. Everything is written with textContent; no markup is ever made from data.
(() => {
  const holder = document.getElementById("tokens");
  if (!holder) return;
  const data = JSON.parse(holder.textContent);
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);
  let picked = null;

  const describe = (span) => {
    const article = span.closest("article[data-key]");
    const record = article && data[article.dataset.key];
    if (!record) return null;
    const first = Number(span.dataset.i);
    const next = Number(span.dataset.n || 1);
    const lines = [`id ${record.ids.slice(first, first + next).join(", ")}   place ${first}`];
    const action = span.classList.contains("a");
    const logprob = record.logprobs && record.logprobs[first];
    if (typeof logprob === "number") lines.push(`log-probability ${logprob.toFixed(3)}   p ${Math.exp(logprob).toPrecision(3)}`);
    const advantage = record.advantages && record.advantages[first];
    if (typeof advantage === "number") lines.push(`advantage ${advantage >= 0 ? "+" : ""}${advantage.toFixed(3)}`);
    lines.push(action ? "sampled by the model: trained" : "written by the environment: weight 0");
    return lines.join("\n");
  };

  const hide = () => {
    tip.hidden = true;
    if (picked) picked.classList.remove("picked");
    picked = null;
  };

  const show = (span) => {
    const text = describe(span);
    if (!text) return hide();
    tip.textContent = text;
    tip.hidden = false;
    const box = span.getClientRects()[0] || span.getBoundingClientRect();
    const size = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left), window.innerWidth - size.width - 8);
    const above = box.top - size.height - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 8 ? above : box.bottom + 8}px`;
  };

  document.addEventListener("mouseover", (event) => {
    const span = event.target.closest && event.target.closest("span[data-i]");
    if (span) show(span);
    else if (!picked) hide();
  });
  document.addEventListener("click", (event) => {
    const span = event.target.closest && event.target.closest("span[data-i]");
    hide();
    if (!span) return;
    show(span);
    picked = span;
    span.classList.add("picked");
  });
  document.addEventListener("scroll", hide, { passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
})();

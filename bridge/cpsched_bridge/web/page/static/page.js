// Update the page: regularly fetch the part that changes, and replace the old one.
// Without this script the page is static; the server renders everything.
"use strict";
(() => {
  const live = document.getElementById("live"), lost = document.getElementById("lost");
  const everyMs = 1000 * Number(document.body.dataset.every);
  let paused = false, tag = "", lostSince = null;

  // Preserve the reader's changes to the page across updates.
  const remembered = () => ({
    open: [...live.querySelectorAll("details[id]")].map((each) => [each.id, each.open]),
    focus: document.activeElement && live.contains(document.activeElement) ? pathOf(document.activeElement) : null,
    scroll: [...live.querySelectorAll(".scroll")].map((each) => [each.scrollLeft, each.scrollTop]),
  });
  // The same link may occur several times, such as in the chart and a table: return a selector and the position.
  const pathOf = (element) => {
    const href = element.getAttribute("href");
    const path = element.id ? "#" + CSS.escape(element.id) : href ? `a[href="${CSS.escape(href)}"]` : null;
    return path && [path, [...live.querySelectorAll(path)].indexOf(element)];
  };
  const restore = (before) => {
    for (const [id, open] of before.open) { const each = document.getElementById(id); if (each) each.open = open; }
    live.querySelectorAll(".scroll").forEach((each, i) => { if (before.scroll[i]) [each.scrollLeft, each.scrollTop] = before.scroll[i]; });
    if (before.focus) { const each = live.querySelectorAll(before.focus[0])[before.focus[1]]; if (each) each.focus({ preventScroll: true }); }
  };
  const busy = () => {
    const chosen = document.getSelection();
    const typing = document.activeElement && document.activeElement.matches("input, select");
    return paused || document.hidden || typing || (chosen && !chosen.isCollapsed);
  };

  async function update() {
    const url = new URL(location.href);
    url.searchParams.set("part", "live");
    url.hash = "";
    try {
      const answer = await fetch(url, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store", signal: AbortSignal.timeout(20000) });
      if (answer.status === 304) { found(); return; }
      if (!answer.ok && answer.status !== 404) throw new Error(`the bridge responds with status ${answer.status}`);
      const text = await answer.text();
      if (busy()) return;
      tag = answer.headers.get("ETag") || "";
      const before = remembered();
      const fresh = new DOMParser().parseFromString(text, "text/html");
      live.replaceChildren(...(fresh.getElementById("live") || fresh.body).childNodes);
      restore(before);
      wire();
      found();
    } catch (error) {
      lostSince = lostSince || new Date();
      lost.hidden = false;
      const words = `No response from the bridge since ${lostSince.toLocaleTimeString()}. This page is out of date. Retrying.`;
      if (lost.textContent !== words) lost.textContent = words;
    }
  }
  const found = () => { lostSince = null; lost.hidden = true; };

  function wire() {
    const button = document.getElementById("pause");
    if (button && button.hidden) {
      button.hidden = false;
      const say = () => { button.setAttribute("aria-pressed", String(paused)); button.textContent = paused ? "Resume updates" : "Pause updates"; };
      button.addEventListener("click", () => { paused = !paused; say(); });
      say();
    }
    const full = document.getElementById("full");
    if (full && full.hidden && document.fullscreenEnabled) {
      full.hidden = false;
      full.addEventListener("click", () => document.documentElement.requestFullscreen());
    }
  }

  wire();
  if (everyMs > 0) {
    const again = async () => { if (!busy()) await update(); setTimeout(again, everyMs); };
    setTimeout(again, everyMs);
  }
})();

// Keeps the page current: each event names a new version, and the page fetches itself again.
"use strict";
(() => {
  const status = document.getElementById("connection");
  let busy = false, again = false, lost = false;

  const editing = () => {
    const at = document.activeElement;
    return at && (at.tagName === "SELECT" || (at.tagName === "INPUT" && at.value !== at.defaultValue));
  };

  // An element with the focus is found again by its id, or by its link.
  const mark = (at) => {
    if (!at || at === document.body) return null;
    if (at.id) return `#${CSS.escape(at.id)}`;
    const link = at.getAttribute("href");
    return link ? `a[href="${CSS.escape(link)}"]` : null;
  };

  const refresh = async () => {
    if (busy) { again = true; return; }
    if (editing() || document.hidden) { again = true; return; }
    busy = true; again = false;
    try {
      const answer = await fetch(location.href, {credentials: "same-origin"});
      if (answer.redirected && new URL(answer.url).pathname === "/login") { location.assign("/login"); return; }
      if (answer.ok) {
        const next = new DOMParser().parseFromString(await answer.text(), "text/html");
        const main = next.getElementById("main"), here = document.getElementById("main");
        if (main && !editing()) {
          const focus = here.contains(document.activeElement) ? mark(document.activeElement) : null;
          const scrolled = [...here.querySelectorAll(".scroll")].map((part) => part.scrollLeft);
          here.replaceWith(document.adoptNode(main));
          [...main.querySelectorAll(".scroll")].forEach((part, i) => { part.scrollLeft = scrolled[i] || 0; });
          if (focus) main.querySelector(focus)?.focus({preventScroll: true});
          main.dataset.version = String(Number(main.dataset.version || 0) + 1);
        } else { again = true; }
      }
    } catch { again = true; }
    busy = false;
  };

  const events = new EventSource("/events");
  events.addEventListener("model", (event) => {
    if (lost) { lost = false; status.textContent = "Connected again."; }
    document.documentElement.dataset.version = event.data;
    refresh();
  });
  events.onerror = () => {
    lost = true;
    status.textContent = "The connection to gangsched is lost. The page tries to connect again.";
    if (events.readyState === EventSource.CLOSED) {
      status.textContent = "The connection to gangsched is lost. Reload the page.";
    }
  };
  document.addEventListener("visibilitychange", () => { if (again) refresh(); });
  document.addEventListener("focusout", () => { if (again) setTimeout(refresh, 0); });
  setInterval(() => { if (again) refresh(); }, 1000);
})();

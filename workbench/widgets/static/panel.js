// Draws what a widget's Python side says: controls, panels of HTML, a status line. It lays out and passes on what the
// reader does; it computes nothing else. All state is in the model's traits.

const THROTTLE_MS = 60;

function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "wb-root";
  root.tabIndex = 0;
  keepKeys(root);
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", model.get("title"));
  const head = add(root, "div", "wb-head");
  const heading = add(head, "span", "wb-title");
  const status = add(head, "span", "wb-status");
  status.setAttribute("role", "status");
  const bar = add(root, "div", "wb-bar");
  const body = add(root, "div", "wb-body");
  const notice = add(root, "div", "wb-notice");
  const help = add(root, "details", "wb-keys");
  el.appendChild(root);

  const cleanups = [];
  const listen = (name, handler) => {
    model.on(`change:${name}`, handler);
    cleanups.push(() => model.off(`change:${name}`, handler));
  };
  let sent = 0;
  const act = (what, value = null) => {
    model.set("command", { do: what, value, n: ++sent + Date.now() });
    model.save_changes();
  };
  const put = (trait, value) => {
    model.set(trait, value);
    model.save_changes();
  };
  let pending = {};
  let timer = null;
  const putSoon = (trait, value) => {
    pending[trait] = value;
    if (timer !== null) return;
    timer = setTimeout(() => {
      timer = null;
      for (const [name, wanted] of Object.entries(pending)) model.set(name, wanted);
      pending = {};
      model.save_changes();
    }, THROTTLE_MS);
  };

  // ------------------------------------------------------------------------------------------------------- controls
  const controls = new Map();
  let drawn = "";
  const drawControls = () => {
    const specs = model.get("controls");
    const signature = JSON.stringify(specs.map((spec) => [spec.id, spec.kind]));
    if (signature !== drawn) {
      drawn = signature;
      bar.replaceChildren();
      controls.clear();
      for (const spec of specs) controls.set(spec.id, makeControl(spec));
    }
    for (const spec of specs) controls.get(spec.id)(spec);
  };
  const makeControl = (first) => {
    if (first.kind === "break") {
      add(bar, "span", "wb-break");
      return () => {};
    }
    if (first.kind === "button") {
      const button = add(bar, "button", "wb-button");
      button.type = "button";
      let spec = first;
      button.addEventListener("click", () => act(spec.do, spec.value ?? null));
      return (now) => {
        spec = now;
        button.textContent = now.label;
        button.title = now.hint || "";
        // a disabled button hears no keys, so the focus goes to the widget, whose keys then still work
        if (now.disabled && document.activeElement === button) root.focus({ preventScroll: true });
        button.disabled = Boolean(now.disabled);
        button.dataset.do = now.do;
        button.classList.toggle("wb-primary", Boolean(now.primary));
        if ("pressed" in now) button.setAttribute("aria-pressed", String(Boolean(now.pressed)));
      };
    }
    if (first.kind === "choices") return makeChoices(first);
    const label = add(bar, "label", `wb-field wb-${first.kind}`);
    const name = add(label, "span", "wb-label");
    const tags = { select: "select", area: "textarea" };
    const input = add(label, tags[first.kind] || "input", "");
    const types = { range: "range", check: "checkbox", number: "number", text: "text" };
    if (types[first.kind]) input.type = types[first.kind];
    const shown = first.kind === "range" ? add(label, "output", "wb-value") : null;
    let spec = first;
    const read = () => {
      if (spec.kind === "check") return input.checked;
      if (spec.kind === "range" || spec.kind === "number") return Number(input.value);
      return input.value;
    };
    input.addEventListener(spec.kind === "range" ? "input" : "change", () => {
      if (shown) shown.textContent = input.value;
      spec.kind === "range" ? putSoon(spec.trait, read()) : put(spec.trait, read());
    });
    if (spec.kind === "text")
      input.addEventListener("keydown", (event) => {
        if (event.key === "Enter") put(spec.trait, read());
      });
    return (now) => {
      spec = now;
      name.textContent = now.label;
      label.title = now.hint || "";
      input.disabled = Boolean(now.disabled);
      input.dataset.trait = now.trait;
      if (now.kind === "range" || now.kind === "number") {
        input.min = now.min;
        input.max = now.max;
        input.step = now.step ?? 1;
      }
      if (now.kind === "select") {
        const text = JSON.stringify(now.options);
        if (input.dataset.options !== text) {
          input.dataset.options = text;
          input.replaceChildren(
            ...now.options.map(([value, words]) => {
              const option = document.createElement("option");
              option.value = value;
              option.textContent = words;
              return option;
            })
          );
        }
      }
      const value = model.get(now.trait);
      if (now.kind === "check") input.checked = Boolean(value);
      else if (now.trait in pending) return;
      else if (document.activeElement !== input || now.kind !== "text") input.value = value;
      if (shown) shown.textContent = now.shown ?? input.value;
      if (now.kind === "text") input.size = Math.min(Math.max(String(input.value).length + 1, 12), 64);
    };
  };

  // several of some names, each with a box to tick; the trait is their names with commas between
  const makeChoices = (first) => {
    const group = add(bar, "div", "wb-field wb-choices");
    group.setAttribute("role", "group");
    const name = add(group, "span", "wb-label");
    const boxes = new Map();
    const chosen = () => model.get(first.trait).split(",").map((word) => word.trim()).filter(Boolean);
    for (const [value, words] of first.options) {
      const label = add(group, "label", "wb-choice");
      const box = add(label, "input", "");
      box.type = "checkbox";
      box.value = value;
      label.append(words);
      boxes.set(value, box);
      box.addEventListener("change", () => {
        const others = chosen().filter((other) => other !== value && !boxes.has(other));
        const ticked = [...boxes].filter(([, one]) => one.checked).map(([one]) => one);
        put(first.trait, [...ticked, ...others].join(", "));
      });
    }
    return (now) => {
      name.textContent = now.label;
      group.setAttribute("aria-label", now.label);
      group.title = now.hint || "";
      group.dataset.trait = now.trait;
      const names = chosen();
      for (const [value, box] of boxes) box.checked = names.includes(value);
    };
  };

  // --------------------------------------------------------------------------------------------------------- panels
  const panes = new Map();
  const drawLayout = () => {
    body.replaceChildren();
    panes.clear();
    for (const row of model.get("rows")) {
      const line = add(body, "div", "wb-row");
      for (const pane of row) {
        const section = add(line, "section", "wb-pane");
        section.style.flexGrow = pane.grow ?? 1;
        section.style.flexBasis = `${pane.basis ?? 260}px`;
        section.dataset.pane = pane.id;
        if (pane.title) add(section, "h4", "wb-pane-title").textContent = pane.title;
        const content = add(section, "div", "wb-content");
        if (pane.height) content.style.maxHeight = `${pane.height}px`;
        panes.set(pane.id, { content, html: null, section });
      }
    }
    drawPanels();
  };
  const drawPanels = () => {
    const panels = model.get("panels");
    for (const [id, pane] of panes) {
      const html = panels[id] ?? "";
      pane.section.hidden = html === "";
      if (html === pane.html) continue;
      pane.html = html;
      const [top, left] = [pane.content.scrollTop, pane.content.scrollLeft];
      const focused = pane.content.contains(document.activeElement) ? identity(document.activeElement) : null;
      const opened = [...pane.content.querySelectorAll("details")].map((one) => one.open);
      pane.content.innerHTML = html;
      pane.content.querySelectorAll("[tabindex], summary").forEach(keepKeys);
      pane.content.querySelectorAll("details").forEach((one, place) => (one.open = opened[place] ?? one.open));
      pane.content.scrollTop = top;
      pane.content.scrollLeft = left;
      const wanted = pane.content.querySelector("[data-into-view]");
      if (wanted) bringIntoView(pane.content, wanted);
      // what had the focus was drawn anew: it, else what it became, else the widget keeps the keys
      if (focused !== null) {
        const again = [...pane.content.querySelectorAll("[tabindex], summary")].find((one) => identity(one) === focused);
        (again ?? root).focus({ preventScroll: true });
      }
    }
    mark();
  };
  const identity = (element) =>
    [element.tagName === "SUMMARY", element.dataset.do, element.dataset.value, element.dataset.link].join("|");
  const bringIntoView = (content, wanted) => {
    const [box, here] = [content.getBoundingClientRect(), wanted.getBoundingClientRect()];
    if (here.top < box.top || here.bottom > box.bottom) content.scrollTop += here.top - box.top - box.height / 3;
    if (here.left < box.left || here.left > box.right) content.scrollLeft += here.left - box.left - box.width / 3;
  };
  const mark = () => {
    const chosen = model.get("selected");
    for (const item of body.querySelectorAll("[data-link]")) {
      const links = item.dataset.link.split(" ");
      item.classList.toggle("wb-selected", chosen !== "" && links.includes(chosen));
    }
  };
  const showChosen = () => {
    mark();
    for (const { content } of panes.values()) {
      const all = [...content.querySelectorAll(".wb-selected")];
      const firm = all.filter((one) => !one.classList.contains("wb-comment"));
      const chosen = firm.length ? firm : all;
      const box = content.getBoundingClientRect();
      const seen = chosen.some((one) => {
        const here = one.getBoundingClientRect();
        return here.top >= box.top && here.bottom <= box.bottom;
      });
      if (chosen.length && !seen) bringIntoView(content, chosen[0]);
    }
  };
  let hovered = null;
  const hover = (event) => {
    const target = event.type === "mouseleave" ? null : event.target.closest?.("[data-link]") ?? null;
    if (target === hovered) return;
    hovered = target;
    const links = target ? target.dataset.link.split(" ") : [];
    for (const item of body.querySelectorAll("[data-link]")) {
      const others = item.dataset.link.split(" ");
      item.classList.toggle("wb-hot", links.some((link) => others.includes(link)));
    }
  };
  body.addEventListener("mouseover", hover);
  body.addEventListener("mouseleave", hover);
  const follow = (target) => {
    if (target.dataset.do) act(target.dataset.do, JSON.parse(target.dataset.value ?? "null"));
    else if (target.dataset.set) put(target.dataset.set, JSON.parse(target.dataset.value));
    else if (target.dataset.link) put("selected", target.dataset.link.split(" ")[0]);
  };
  body.addEventListener("click", (event) => {
    const target = event.target.closest?.("[data-do],[data-set],[data-link]");
    if (target) follow(target);
  });

  // ----------------------------------------------------------------------------------------------------------- keys
  root.addEventListener("keydown", (event) => {
    const tag = event.target.tagName;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (tag === "TEXTAREA" || tag === "SELECT" || (tag === "INPUT" && event.key !== "Escape")) return;
    if (event.key === "Enter" || event.key === " ") {
      if (tag === "BUTTON" || tag === "SUMMARY") return;
      const target = event.target.closest?.("[data-do],[data-set],[data-link]");
      if (target && event.target !== root) {
        follow(target);
        event.preventDefault();
        return;
      }
    }
    const row = event.target.closest?.('[role="treeitem"]');
    if (row && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      const next = event.key === "ArrowDown" ? row.nextElementSibling : row.previousElementSibling;
      next?.focus();
      event.preventDefault();
      event.stopPropagation();
      return;
    }
    const wanted = model.get("shortcuts")[event.key];
    if (!wanted) return;
    act(wanted[0], wanted[1] ?? null);
    event.preventDefault();
    event.stopPropagation();
  });
  const drawKeys = () => {
    help.replaceChildren();
    const keys = Object.entries(model.get("shortcuts"));
    help.hidden = keys.length === 0;
    add(help, "summary", "").textContent = "keys";
    for (const [key, wanted] of keys) {
      const line = add(help, "span", "wb-key");
      add(line, "kbd", "").textContent = key === " " ? "space" : key.replace("Arrow", "");
      line.append(` ${wanted[2] ?? wanted[0]}`);
    }
  };

  // ---------------------------------------------------------------------------------------------------------- theme
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const drawTheme = () => {
    const wanted = model.get("theme");
    const jupyter = document.body.dataset.jpThemeLight;
    const isDark = jupyter === undefined ? dark.matches : jupyter === "false";
    root.dataset.theme = wanted !== "auto" ? wanted : isDark ? "dark" : "light";
  };
  const watcher = new MutationObserver(drawTheme);
  watcher.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  dark.addEventListener("change", drawTheme);
  cleanups.push(() => watcher.disconnect(), () => dark.removeEventListener("change", drawTheme));

  // The static twin stands below the widget for readers without a kernel; beside the live widget it is not wanted.
  const hideTwin = () => {
    for (const twin of document.querySelectorAll(`[data-twin="${model.get("twin")}"]`)) {
      const output = twin.closest(".jp-OutputArea-child") ?? twin;
      output.style.display = "none";
    }
  };
  const arrivals = new MutationObserver(hideTwin);
  arrivals.observe(document.body, { childList: true, subtree: true });
  const settled = setTimeout(() => arrivals.disconnect(), 10000);
  cleanups.push(() => arrivals.disconnect(), () => clearTimeout(settled));

  const drawTexts = () => {
    heading.textContent = model.get("title");
    status.textContent = model.get("status");
    notice.textContent = model.get("notice");
    notice.hidden = model.get("notice") === "";
  };
  const heard = new Set();
  const listenControls = () => {
    for (const { trait } of model.get("controls")) {
      if (!trait || heard.has(trait)) continue;
      heard.add(trait);
      listen(trait, drawControls);
    }
    drawControls();
  };
  listen("controls", listenControls);
  listen("rows", drawLayout);
  listen("panels", drawPanels);
  listen("selected", showChosen);
  listen("shortcuts", drawKeys);
  listen("theme", drawTheme);
  for (const trait of ["title", "status", "notice"]) listen(trait, drawTexts);
  drawTheme();
  drawTexts();
  listenControls();
  drawLayout();
  drawKeys();
  hideTwin();
  if (model.get("selected")) requestAnimationFrame(showChosen);
  return () => {
    if (timer !== null) clearTimeout(timer);
    for (const clean of cleanups) clean();
  };
}

// The notebook's own shortcuts stay out while this element has the focus; JupyterLab asks the focused element itself.
function keepKeys(element) {
  element.dataset.lmSuppressShortcuts = "true";
}

function add(parent, tag, name) {
  const child = document.createElement(tag);
  if (name) child.className = name;
  if (["BUTTON", "INPUT", "SELECT", "TEXTAREA", "SUMMARY"].includes(child.tagName)) keepKeys(child);
  parent.appendChild(child);
  return child;
}

export default { render };

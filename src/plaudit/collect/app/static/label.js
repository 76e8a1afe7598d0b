// Keys, active time, the pasted share, dialogs. The form works without any of it.
const form = document.getElementById("task");
const data = form.dataset;
const typing = (node) => node.closest("textarea, select, [contenteditable], input:not([type=radio], [type=checkbox])");
const rtl = document.documentElement.dir === "rtl";
const groups = [...form.querySelectorAll("fieldset[data-main]")];
const radios = (group) => [...group.querySelectorAll("input[type=radio]")];

// The group that a number speaks of: the one in focus, else the first that is not answered yet.
function current() {
  const focused = document.activeElement.closest?.("fieldset[data-main]");
  const open = groups.find((group) => !radios(group).some((radio) => radio.checked && radio.value));
  return focused ?? open ?? groups.at(-1);
}

function choose(radio) {
  if (!radio) return;
  radio.checked = true;
  radio.dispatchEvent(new Event("input", { bubbles: true }));
  radio.dispatchEvent(new Event("change", { bubbles: true }));
  radio.focus();
}

function chooseNumber(number) {
  const group = current();
  if (!group) return;
  const before = radios(group);
  choose(before[number - 1]);
  // Of several groups the next one is up, unless a step was called wrong: what follows does not count.
  const next = groups[groups.indexOf(group) + 1];
  if (next && number <= before.length && before[number - 1].value !== "wrong") {
    (radios(next).find((radio) => radio.checked) ?? radios(next)[0]).focus();
  }
}

function move(step) {
  const group = current();
  if (!group || groups.length > 1) return;
  const all = radios(group);
  const at = all.findIndex((radio) => radio.checked);
  const scale = all.filter((radio) => radio.value !== "none");
  const middle = scale.length / 2;
  const start = step < 0 ? Math.ceil(middle) - 1 : Math.floor(middle);
  const beside = scale.length % 2 ? start + step : start;
  choose(all[at < 0 ? beside : Math.min(Math.max(at + step, 0), all.length - 1)]);
}

function open(id, focus) {
  const details = document.getElementById(id);
  if (!details) return;
  details.open = true;
  details.querySelector(focus)?.focus();
}

// The guidelines stay open from task to task, for whoever has opened them.
const guidelines = document.getElementById("guide");
if (guidelines) {
  guidelines.open = localStorage.getItem("plaudit:guide") === "open";
  guidelines.addEventListener("toggle", () => localStorage.setItem("plaudit:guide", guidelines.open ? "open" : ""));
}

function guide() {
  if (!guidelines) return location.assign("/guidelines");
  guidelines.open = !guidelines.open;
  guidelines.querySelector("summary").focus();
}

function help() {
  const dialog = document.getElementById("keys");
  if (dialog.open) dialog.close();
  else dialog.showModal();
}

const main = () => document.getElementById("choose") ?? document.getElementById("send");
const commands = {
  s: () => open("skip", "button"),
  n: () => open("note", "textarea"),
  u: () => document.getElementById("undo")?.requestSubmit(),
  d: () => document.getElementById("differ")?.click(),
  g: guide,
  z: () => [...document.querySelectorAll("a.picture")].find((link) => link.checkVisibility())?.click(),
  "?": help,
  arrowleft: () => move(rtl ? 1 : -1),
  arrowright: () => move(rtl ? -1 : 1),
  enter: () => form.requestSubmit(main()),
};
const keysOn = () => localStorage.getItem("plaudit:keys") !== "off";

document.addEventListener("keydown", (event) => {
  const node = event.target;
  if (event.key === "Enter" && event.ctrlKey && node.closest("#task")) {
    event.preventDefault();
    form.requestSubmit(document.getElementById(node.id === "message" ? "say" : "send"));
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || typing(node) || !keysOn()) return;
  const dialog = document.querySelector("dialog[open]");
  const key = event.key.toLowerCase();
  if (dialog && !["?", "g"].includes(key)) return;
  if (key === "enter" && node.closest("button, a, summary, input[type=checkbox]")) return;
  if (key.startsWith("arrow") && node.matches("input[type=radio]")) return;
  if (/^[1-9]$/.test(key) && data.numbers === "yes") chooseNumber(Number(key));
  else if (commands[key]) commands[key]();
  else return;
  event.preventDefault();
});

// What is missing must be in sight, or the browser refuses to send and says nothing.
form.addEventListener("invalid", (event) => event.target.closest("details")?.setAttribute("open", ""), true);

// Time counts while the page is in sight and somebody does something now and then.
const store = `plaudit:seconds:${data.person}:${data.assignment}`;
let seconds = Number(sessionStorage.getItem(store)) || 0;
let active = Date.now();
for (const kind of ["pointermove", "pointerdown", "keydown", "scroll", "touchstart"]) {
  addEventListener(kind, () => (active = Date.now()), { passive: true });
}
setInterval(() => {
  if (document.visibilityState !== "visible" || Date.now() - active > 60_000) return;
  seconds += 1;
  sessionStorage.setItem(store, seconds);
  form.elements.seconds.value = seconds;
}, 1000);

let pasted = 0;
form.addEventListener("paste", (event) => {
  pasted += event.clipboardData?.getData("text").length ?? 0;
});
form.addEventListener("input", () => {
  const written = ["answer", "message", "why"].reduce((sum, name) => sum + (form.elements[name]?.value?.length ?? 0), 0);
  form.elements.pasted.value = written ? Math.min(1, pasted / written).toFixed(3) : "";
  const steps = [...document.querySelectorAll(".step")];
  const wrong = steps.findIndex((step) => step.querySelector("input[value=wrong]")?.checked);
  steps.forEach((step, at) => step.classList.toggle("after", wrong >= 0 && at > wrong));
});

// Numbers on the options, and the switch for who does not want keys.
if (groups.length === 1) {
  radios(groups[0]).slice(0, 9).forEach((radio, at) => {
    const hint = document.createElement("kbd");
    hint.className = "key-hint";
    hint.ariaHidden = "true";
    hint.textContent = at + 1;
    radio.parentElement.append(hint);
  });
}
const keySwitch = document.getElementById("keys-on");
keySwitch.checked = keysOn();
keySwitch.closest("label").hidden = false;
keySwitch.addEventListener("change", () => localStorage.setItem("plaudit:keys", keySwitch.checked ? "on" : "off"));
document.querySelector("[aria-invalid=true], .fault")?.scrollIntoView({ block: "center" });
document.documentElement.dataset.keys = "ready";

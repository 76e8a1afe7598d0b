// Drafts in the browser and on the server, and sends that are repeated with the same key until they arrive.
const form = document.getElementById("task");
const data = form.dataset;
const box = document.getElementById("sending");
const PREFIX = "plaudit:draft:";
const place = `${PREFIX}${data.person}:${data.edit}:${data.assignment}`;
const KEPT_DAYS = 14;
const OWN = ["form_token", "assignment", "key", "guidelines", "seconds", "pasted", "turn"];
let sending = false;
let timer = 0;

const fields = () => [...new FormData(form)].filter(([name]) => !OWN.includes(name));

function keep(saved) {
  try {
    localStorage.setItem(place, JSON.stringify({ at: Date.now(), saved, fields: fields() }));
  } catch {
    // A full or forbidden storage: the server's draft is what is left.
  }
}

function forget() {
  localStorage.removeItem(place);
}

// Drafts of others at the same machine, and old ones, are nobody's business.
function tidy() {
  for (const name of Object.keys(localStorage).filter((key) => key.startsWith(PREFIX))) {
    const at = JSON.parse(localStorage.getItem(name) ?? "{}").at ?? 0;
    const own = name.startsWith(`${PREFIX}${data.person}:`);
    if (!own || Date.now() - at > KEPT_DAYS * 86_400_000) localStorage.removeItem(name);
  }
}

// What the server did not get: it is filled in again after a lost connection or a closed window.
function restore() {
  const found = JSON.parse(localStorage.getItem(place) ?? "null");
  if (!found || found.saved) return;
  const values = new Map();
  for (const [name, value] of found.fields) values.set(name, [...(values.get(name) ?? []), value]);
  for (const field of form.elements) {
    if (!field.name || OWN.includes(field.name) || field.type === "submit" || field.type === "hidden") continue;
    const given = values.get(field.name) ?? [];
    if (field.type === "radio" || field.type === "checkbox") field.checked = given.includes(field.value);
    else if (values.has(field.name)) field.value = given[0];
    if (given.some(Boolean)) field.closest("details.flags, details.why, #note")?.setAttribute("open", "");
  }
  form.dispatchEvent(new Event("restored"));
}

function say(words) {
  box.textContent = words;
  box.hidden = !words;
}

const body = (submitter) => {
  const sent = new FormData(form);
  if (submitter?.name) sent.append(submitter.name, submitter.value);
  return new URLSearchParams(sent);
};
const post = (to, content, more) => fetch(to, { method: "POST", body: content, redirect: "manual", ...more });

async function saveDraft(more) {
  if (sending || data.edit === "yes") return;
  try {
    const answer = await post("/label/draft", body(), more);
    if (answer.type === "opaqueredirect" && !sending) {
      keep(true);
      document.getElementById("saved").textContent = data.saved;
    } else if (answer.status === 401 || answer.status === 403) say(data.lost);
  } catch {
    // No connection: it is kept in this browser, and the next change tries again.
  }
}

form.addEventListener("input", () => {
  document.getElementById("saved").textContent = "";
  keep(false);
  clearTimeout(timer);
  timer = setTimeout(saveDraft, 2500);
});
document.addEventListener("visibilitychange", () => {
  const unsaved = !(JSON.parse(localStorage.getItem(place) ?? '{"saved":true}').saved);
  if (document.visibilityState === "hidden" && unsaved) saveDraft({ keepalive: true });
});

async function send(submitter) {
  // Made once: what is sent again is the same words under the same key, and so the same answer.
  const content = body(submitter);
  for (let wait = 1; ; wait = Math.min(2 * wait, 30)) {
    try {
      const answer = await post(form.getAttribute("action"), content);
      if (answer.type === "opaqueredirect") {
        forget();
        return location.assign(data.then);
      }
      // A page that says what is wrong; the browser's own send shows it.
      if (![502, 503, 504].includes(answer.status)) return form.submit();
    } catch {
      // No connection.
    }
    say(data.again);
    await new Promise((done) => setTimeout(done, wait * 1000));
  }
}

form.addEventListener("submit", (event) => {
  const own = event.submitter?.hasAttribute("formaction");
  if (sending) return event.preventDefault();
  if (event.defaultPrevented) return;
  sending = true;
  clearTimeout(timer);
  event.submitter?.setAttribute("aria-busy", "true");
  // Skips, notes and saves go the browser's way; what is filled in goes with them.
  if (own) return keep(true);
  event.preventDefault();
  send(event.submitter);
});
form.addEventListener("taken", forget);
// A page that comes back out of the browser's memory was sent already.
addEventListener("pageshow", (event) => event.persisted && location.reload());
for (const other of document.querySelectorAll("form:not(#task):not([method=dialog])")) {
  other.addEventListener("submit", (event) => {
    if (other.dataset.sent) event.preventDefault();
    other.dataset.sent = "yes";
  });
}
tidy();
restore();

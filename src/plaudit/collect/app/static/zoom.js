// A picture in large, over the page: by a click or Enter on it, or by Z; the arrows go from one to the next.
// There a click, or Z, shows it in its own size.
const links = [...document.querySelectorAll("a.picture")];
const dialog = document.getElementById("zoom");
const large = document.createElement("img");
const onward = document.documentElement.dir === "rtl" ? "ArrowLeft" : "ArrowRight";
let at = 0;

function show(place) {
  at = (place + links.length) % links.length;
  const { src, alt } = links[at].querySelector("img");
  Object.assign(large, { src, alt });
  dialog.prepend(large);
  if (!dialog.open) dialog.showModal();
}

links.forEach((link, place) =>
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    show(place);
  }),
);
large.addEventListener("click", () => dialog.classList.toggle("full"));
dialog.addEventListener("keydown", (event) => {
  if (["ArrowLeft", "ArrowRight"].includes(event.key)) show(at + (event.key === onward ? 1 : -1));
  else if (event.key.toLowerCase() === "z") large.click();
});

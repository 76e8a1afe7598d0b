// A picture in large, over the page: by a click or Enter on it, or by Z; the arrows go from one to the next.
const links = [...document.querySelectorAll("a.picture")];
const dialog = document.getElementById("zoom");
const large = dialog.querySelector("img");
const full = dialog.querySelector("button[type=button]");
const onward = document.documentElement.dir === "rtl" ? "ArrowLeft" : "ArrowRight";
let at = 0;

function show(place) {
  at = (place + links.length) % links.length;
  const small = links[at].querySelector("img");
  // The last one's pixels would stand under the new one's words until it is there.
  large.removeAttribute("src");
  Object.assign(large, { src: small.src, alt: small.alt });
  if (!dialog.open) dialog.showModal();
}

links.forEach((link, place) =>
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    show(place);
  }),
);
full.addEventListener("click", () => {
  full.ariaPressed = dialog.classList.toggle("full");
});
dialog.addEventListener("keydown", (event) => {
  if (event.key === "ArrowRight" || event.key === "ArrowLeft") show(at + (event.key === onward ? 1 : -1));
  else if (event.key.toLowerCase() === "z") full.click();
  else return;
  event.preventDefault();
});
dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());

// Whoever signs out leaves no draft in a browser that others may use; what was sent or saved is on the server.
for (const name of Object.keys(localStorage)) {
  if (name.startsWith("plaudit:draft:")) localStorage.removeItem(name);
}
sessionStorage.clear();

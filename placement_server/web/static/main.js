// The frame of the pages: which one is shown, and the token that they use.

import { ApiError, hasToken, login, setToken } from "./api.js";
import { element, entitle, field } from "./dom.js";
import { hideTip } from "./tip.js";
import * as changes from "./changes/page.js";
import * as consumer from "./consumer/page.js";
import * as fleet from "./fleet/page.js";
import * as host from "./host/page.js";
import * as search from "./search/page.js";

const PAGES = { changes, consumer, fleet, host, search };
const FIRST = "fleet";
/** The pages of one thing: without its id in the address there is nothing to show. */
const NEED_ID = new Set(["consumer", "host"]);

const main = document.getElementById("main");
const forget = document.getElementById("forget-token");

let leaving = new AbortController();
let isFirst = true;

/** Return the page that the address names, with the rest of its path and its query. */
function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/").map(decoded);
  const isPage = Object.hasOwn(PAGES, name) && (rest[0] || !NEED_ID.has(name));
  return { name: isPage ? name : FIRST, path: rest, query: new URLSearchParams(query) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  hideTip();
  const { name, path, query } = place();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  forget.hidden = document.body.dataset.auth === "noauth2" || !hasToken();
  if (!hasToken()) return askForToken("");
  const section = element("div", { class: `page ${name}` });
  main.replaceChildren(section);
  if (!isFirst) main.focus({ preventScroll: true });
  isFirst = false;
  try {
    await PAGES[name].show(section, { path, query, signal });
  } catch (error) {
    if (!signal.aborted) fail(section, error);
  }
}

function fail(section, error) {
  if (error instanceof ApiError && error.status === 401) {
    setToken(null);
    forget.hidden = true;
    return askForToken("The server does not accept this login, or not any longer.");
  }
  section.append(element("p", { class: "failure", role: "alert" }, explained(error)));
}

function explained(error) {
  if (error instanceof ApiError && error.status === 403) return `You may not read this. ${error.message}`;
  return error.message;
}

function askForToken(reason) {
  entitle("Log in");
  const user = element("input", { autocomplete: "username", required: true });
  const password = element("input", { type: "password", autocomplete: "current-password", required: true });
  const domain = element("input", { autocomplete: "off", value: "Default", required: true });
  const project = element("input", { autocomplete: "off" });
  const token = element("input", { type: "password", autocomplete: "off", required: true });
  const refused = element("p", { role: "alert" }, reason);
  const logIn = async () => {
    try {
      await login({ user: user.value, password: password.value, domain: domain.value, project: project.value });
      show();
    } catch (error) {
      refused.textContent = error.message;
    }
  };
  const form = (label, submit, ...content) => element("form", {
    class: "token", "aria-label": label, submit: (event) => { event.preventDefault(); submit(); },
  }, content);
  main.replaceChildren(
    element("h1", {}, "Log in"),
    refused,
    form("With name and password", logIn, field("User", user), field("Password", password), field("Domain", domain),
      field("Project (else the default one)", project), element("button", {}, "Log in")),
    element("details", {}, element("summary", {}, "Use a token instead"),
      form("With a token", () => { setToken(token.value.trim()); show(); },
        element("p", {}, element("code", {}, "openstack token issue -f value -c id"), " prints one."),
        field("Token", token), element("button", {}, "Use it"))),
    element("p", { class: "faint" }, "All of this stays in the memory of this tab, until it is closed or reloaded."));
  user.focus();
}

const cloud = document.getElementById("cloud");
cloud.textContent = document.body.dataset.cloud;
cloud.hidden = !cloud.textContent;
forget.addEventListener("click", () => {
  setToken(null);
  show();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  // The address names the page that is shown, so it cannot lead to a place within it.
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", show);
show();

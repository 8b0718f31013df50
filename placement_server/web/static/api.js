// The Placement API, as the person who looks. Token, name and password are in the memory of this page and nowhere else.

const VERSION = "placement 1.39, placement-ext 1.1";

let token = document.body.dataset.auth === "noauth2" ? "admin" : null;

/** Name and password, with which a new token is asked for before the old one expires; null with a token of another source. */
let credentials = null;
let expiresAt = Infinity;
let renewal = null;
const RENEW_BEFORE_MILLISECONDS = 120_000;

/** Where the API is, seen from the page. */
const root = new URL(document.body.dataset.api, document.baseURI);

/** An error that the API answered with. */
export class ApiError extends Error {
  constructor(status, detail, code, body) {
    super(detail);
    this.status = status;
    this.code = code;
    this.body = body;
  }
}

/** An error because no API answered. */
export class NoAnswer extends Error {}

export function hasToken() {
  return token !== null;
}

export function setToken(given) {
  token = given;
  credentials = null;
  expiresAt = Infinity;
}

/** Ask Keystone, through the server, for a token of a person: {user, password, domain, project}. */
export async function login(given) {
  use(await loggedIn(given), given);
}

async function loggedIn(given) {
  const url = new URL("login", document.baseURI);
  const headers = { Accept: "application/json", "Content-Type": "application/json" };
  const answer = await received(new Request(url, {
    method: "POST", headers, body: JSON.stringify(given), cache: "no-store", credentials: "omit", redirect: "error",
  }));
  return answered(answer.response, answer.text);
}

function use(answer, given) {
  token = answer.token;
  expiresAt = Date.parse(answer.expires_at);
  credentials = given;
}

/**
 * Ask for a new token where the old one is about to expire; many requests at once ask once.
 * Who logged out meanwhile, or in as another, stays so.
 */
async function renew() {
  if (credentials === null || Date.now() < expiresAt - RENEW_BEFORE_MILLISECONDS) return;
  const given = credentials;
  renewal ??= loggedIn(given)
    .then((answer) => { if (credentials === given) use(answer, given); })
    .finally(() => { renewal = null; });
  await renewal;
}

/**
 * Return the answer to GET of a path of the API.
 * `parameters` is a query string, or pairs of names and values. Null when there is no such thing (404).
 */
export async function read(path, parameters = "", signal = null) {
  const url = new URL(path, root);
  // A name that is a dot or two would be taken for a folder, and another path be read.
  return url.pathname.endsWith(`/${path}`) ? ask(url, parameters, signal) : null;
}

/** Return the answer to a read that only these pages have. */
export async function readOwn(name, parameters = "", signal = null) {
  return ask(new URL(name, document.baseURI), parameters, signal);
}

/** Return the answer to a question of the API that has a body. It writes nothing. */
export async function post(path, question) {
  const { response, text } = await send(new URL(path, root), null, question);
  return answered(response, text);
}

async function ask(url, parameters, signal) {
  url.search = new URLSearchParams(parameters).toString();
  url.hash = "";
  const { response, text } = await send(url, signal);
  return response.status === 404 ? null : answered(response, text);
}

async function send(url, signal, question = null) {
  await renew();
  const headers = { Accept: "application/json", "OpenStack-API-Version": VERSION };
  if (token !== null) headers["X-Auth-Token"] = token;
  const asking = question === null ? {} : { method: "POST", body: JSON.stringify(question) };
  if (question !== null) headers["Content-Type"] = "application/json";
  return received(new Request(url, { signal, headers, ...asking, cache: "no-store", credentials: "omit", redirect: "error" }), signal);
}

async function received(request, signal = null) {
  try {
    const response = await fetch(request);
    return { response, text: await response.text() };
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new NoAnswer("No answer from the server.");
  }
}

function answered(response, text) {
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    // A proxy in between answers with its own page.
    if (response.ok) throw new NoAnswer(`What answers at ${response.url} is not the API.`);
  }
  if (response.ok) return body;
  const error = body?.errors?.[0];
  throw new ApiError(response.status, error?.detail ?? `${response.status} ${response.statusText}`, error?.code, body);
}

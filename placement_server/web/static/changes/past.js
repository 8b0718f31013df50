// Past changes: read from the API, and shown as a table.

import { ApiError, read } from "../api.js";
import { element, number, pageLink } from "../dom.js";
import { moment } from "../fleet/hosts.js";
import { scrolling } from "../host/page.js";

const UUID = /^[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}$/i;
/** So many changes of one write are shown: a new host has hundreds. */
const MOST_ENTRIES = 12;
const SIGNS = { "0 1": "+", "1 0": "−" };

/** Return the newest changes of a host, a consumer and a class, trait or aggregate, where these are given. */
export async function past({ host = "", consumer = "", name = "" }, most, signal) {
  const root = host && !UUID.test(host) ? await uuidOf(host, signal) : host;
  const parameters = [["root", root], ["consumer", consumer], ["name", name]].filter(([, value]) => value);
  return read("history", [...parameters, ["limit", most]], signal);
}

async function uuidOf(name, signal) {
  const { resource_providers: providers } = await read("resource_providers", [["name", name]], signal);
  if (!providers.length) throw new ApiError(404, `There is no host ${name}, or not any longer: its uuid finds what was changed of it.`);
  return providers[0].root_provider_uuid;
}

/** Return a table of past changes; on the page of a host without the column that names it. */
export function pastTable({ history, days }, isOfHost = false) {
  if (!history.length) {
    return element("p", { class: "faint" }, days ? `Nothing in the last ${days} days.` : "The server keeps no past changes ([placement_server]history_days).");
  }
  const rows = history.map((write) => element("tr", {},
    element("td", {}, element("time", { datetime: write.at }, moment(write.at))),
    isOfHost ? null : element("th", { scope: "row" }, hostOf(write)),
    element("td", {}, write.consumer_uuid ? pageLink("consumer", write.consumer_uuid, write.consumer_uuid) : ""),
    element("td", {}, write.changes.slice(0, MOST_ENTRIES).map((change) => element("div", {}, textOf(change),
      element("span", { class: "faint" }, placeOf(change, write)))),
      write.changes.length > MOST_ENTRIES ? element("div", { class: "faint" }, `and ${number(write.changes.length - MOST_ENTRIES)} more`) : null),
    element("td", {}, write.user_id, element("div", { class: "faint" }, write.request_id))));
  const titles = ["Time", ...(isOfHost ? [] : ["Host"]), "Consumer", "Change", "By"];
  return scrolling("Changes, the newest first", titles, rows);
}

function hostOf({ root_provider_name: name, root_provider_uuid: uuid }) {
  if (uuid === null) return "";
  return name === null ? `${uuid}, which is gone` : pageLink("host", name, uuid);
}

function textOf({ what, name, before, after }) {
  if (["trait", "aggregate", "provider"].includes(what)) return `${SIGNS[`${before} ${after}`] ?? ""} ${what} ${name}`;
  if (what === "name" || what === "parent") return `${what} ${before ?? "none"} → ${after ?? "none"}`;
  return `${name}${what === "used" ? "" : ` ${what}`} ${before} → ${after}`;
}

/** Return the provider of a change, unless it is the host itself, or what changed. */
function placeOf({ what, provider_uuid: uuid, provider_name: name }, write) {
  return what === "provider" || uuid === write.root_provider_uuid ? "" : ` of ${name ?? uuid}`;
}

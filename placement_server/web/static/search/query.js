// Queries for allocation candidates: taken apart for the form, put together, and changed as an explanation proposes.

/** The parameters of a group that the form has fields for; with the suffix of the group behind. */
export const FIELDS = ["resources", "required", "member_of"];

const OF_GROUP = new RegExp(`^(${FIELDS.join("|")})(.*)$`);

/** Return the query of a text that somebody pasted: a query, a URL with one. */
export function queryIn(text) {
  const start = text.indexOf("?");
  const query = (start < 0 ? text : text.slice(start + 1)).replaceAll(/\s+/g, "").replace(/^&|&$/g, "");
  return query.replaceAll(/(^|&)(resources\w*)=([^&]*)/g, (_all, before, name, value) => `${before}${name}=${amounts(value)}`);
}

/** Return amounts as the API reads them, of `VCPU:4` or `VCPU=4`. */
export function amounts(text) {
  return text.replaceAll("=", ":");
}

/** Return the groups of a query, each with a list of values by field, and all other parameters. */
export function takenApart(query) {
  const groups = new Map([["", {}]]);
  const others = [];
  for (const [name, value] of new URLSearchParams(query)) {
    const [, field, suffix] = name.match(OF_GROUP) ?? [];
    if (field === undefined) {
      others.push([name, value]);
    } else {
      if (!groups.has(suffix)) groups.set(suffix, {});
      (groups.get(suffix)[field] ??= []).push(value);
    }
  }
  return { groups, others };
}

/** Return the query of pairs of names and values, as a person would write it. */
export function written(pairs) {
  return pairs.filter(([, value]) => value !== "")
    .map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value).replaceAll(/%(3A|2C|21)/g, decodeURIComponent)}`)
    .join("&");
}

/** Return a query with the changes of one entry of `closest`. */
export function changed(query, changes) {
  return written(changes.reduce(afterChange, [...new URLSearchParams(query)]));
}

function afterChange(pairs, change) {
  const suffix = change.group ?? "";
  const aggregates = change.group === null ? "root_member_of" : `member_of${suffix}`;
  if ("resource_class" in change) {
    return edited(pairs, `resources${suffix}`, (part) => (
      part.split(":")[0] === change.resource_class ? `${change.resource_class}:${change.to}` : part));
  }
  if ("drop_trait" in change) return without(pairs, `required${suffix}`, change.drop_trait);
  if ("allow_trait" in change) return without(pairs, `required${suffix}`, `!${change.allow_trait}`);
  if ("drop_aggregate" in change) return without(pairs, aggregates, change.drop_aggregate);
  if ("allow_aggregate" in change) return allowed(pairs, aggregates, change.allow_aggregate);
  if ("drop_in_tree" in change) return pairs.filter(([name]) => name !== `in_tree${suffix}`);
  if ("drop_same_subtree" in change) {
    return pairs.filter(([name, value]) => name !== "same_subtree" || !isSame(value, change.drop_same_subtree));
  }
  const [whole] = ["group_policy", "isolate", "root_required"].filter((name) => `drop_${name}` in change);
  return pairs.filter(([name]) => name !== whole);
}

/** Return pairs with each part of the values of one parameter edited; parts that become empty go. */
function edited(pairs, parameter, edit) {
  return pairs.flatMap(([name, value]) => {
    if (name !== parameter) return [[name, value]];
    const parts = value.split(",").map(edit).filter(Boolean);
    return parts.length ? [[name, parts.join(",")]] : [];
  });
}

function without(pairs, parameter, condition) {
  const isList = (value) => value.startsWith("in:");
  return pairs.flatMap(([name, value]) => {
    if (name !== parameter) return [[name, value]];
    if (isList(value)) return isSame(value, condition) ? [] : [[name, value]];
    return edited([[name, value]], name, (part) => (part === condition ? "" : part));
  });
}

function allowed(pairs, parameter, aggregate) {
  return pairs.flatMap(([name, value]) => {
    if (name !== parameter || !value.startsWith("!")) return [[name, value]];
    const left = value.replace(/^!(in:)?/, "").split(",").filter((part) => part !== aggregate);
    return left.length ? [[name, left.length > 1 ? `!in:${left.join(",")}` : `!${left[0]}`]] : [];
  });
}

/** Return whether two lists have the same members in any order. */
function isSame(value, other) {
  const members = (text) => text.replace(/^in:/, "").split(",").sort().join();
  return members(value) === members(other);
}

/** Return the classes that a query asks for, those of the first group first. */
export function classesOf(query) {
  return [...new URLSearchParams(query)].filter(([name]) => name.startsWith("resources"))
    .flatMap(([, value]) => value.split(",")).map((part) => part.split(":")[0]);
}

const ROOT_REQUIRED = "root_required";
const NOT_DISABLED = "!COMPUTE_STATUS_DISABLED";

/** Return a query that leaves disabled hosts out, as schedulers do. */
export function withoutDisabled(query) {
  const pairs = [...new URLSearchParams(query)];
  const own = pairs.filter(([name]) => name === ROOT_REQUIRED).map(([, value]) => value).join(",");
  if (own.split(",").some((part) => part.replace("!", "") === NOT_DISABLED.slice(1))) return query;
  return written([...pairs.filter(([name]) => name !== ROOT_REQUIRED), [ROOT_REQUIRED, own ? `${own},${NOT_DISABLED}` : NOT_DISABLED]]);
}

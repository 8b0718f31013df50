// The form of a query: fields for its groups, and the query itself, to be pasted or copied.

import { element, field } from "../dom.js";
import { FIELDS, amounts, queryIn, takenApart, written } from "./query.js";

const LABELS = {
  resources: ["Resources", "VCPU=4,MEMORY_MB=8192"],
  required: ["Required traits", "HW_CPU_X86_AVX2,!CUSTOM_X"],
  member_of: ["Member of aggregate", ""],
};

export class QueryForm {
  /** `onSubmit` gets the query. */
  constructor(onSubmit) {
    this.others = [];
    this.groups = element("div", { class: "groups" });
    this.query = element("textarea", {
      rows: "3", spellcheck: "false", autocomplete: "off", input: () => this.#take(queryIn(this.query.value)),
    });
    this.policy = element("select", { change: () => this.#write() },
      ["", "none", "isolate"].map((value) => element("option", { value }, value || "not given")));
    this.policyField = field("Policy between groups", this.policy);
    this.element = element("form",
      {
        class: "query",
        "aria-label": "Request",
        submit: (event) => {
          event.preventDefault();
          this.query.value = queryIn(this.query.value);
          const first = this.groups.querySelector("input");
          const isEmpty = !this.query.value;
          first.setCustomValidity(isEmpty ? "Say what it needs, such as VCPU=4,MEMORY_MB=8192." : "");
          if (isEmpty) first.reportValidity();
          else onSubmit(this.query.value);
        },
      },
      this.groups,
      this.policyField,
      element("button", { type: "button", click: () => this.#addGroup() }, "Add a group"),
      field("Query, or a URL with one", this.query),
      element("button", { class: "main-action" }, "Find a place"));
    this.show("");
  }

  /** Fill all fields from a query. */
  show(query) {
    this.query.value = query;
    this.#take(query);
  }

  /** Fill the fields while somebody writes the query: at its end it is too late, as what is clicked then moves. */
  #take(query) {
    const { groups, others } = takenApart(query);
    this.others = others.filter(([name]) => name !== "group_policy");
    this.policy.value = others.find(([name]) => name === "group_policy")?.[1] ?? "";
    this.groups.replaceChildren(...[...groups].map(([suffix, values]) => this.#group(suffix, values)));
    this.#tidy();
  }

  #addGroup() {
    const taken = new Set([...this.groups.children].map((group) => group.dataset.suffix));
    let place = 1;
    while (taken.has(`_${place}`)) place += 1;
    const group = this.#group(`_${place}`, {});
    this.groups.append(group);
    this.#tidy();
    group.querySelector("input").focus();
  }

  #group(suffix, values) {
    const inputs = FIELDS.map((name) => {
      const [label, placeholder] = LABELS[name];
      // One value may be repeated; a line for each would be seldom used, so they stay as they are.
      const input = element("input", { placeholder, "data-name": name, spellcheck: "false", autocomplete: "off", input: () => { input.setCustomValidity(""); this.#write(); } });
      const [first = "", ...more] = values[name] ?? [];
      input.value = first;
      input.dataset.more = JSON.stringify(more);
      return field(label, input);
    });
    const remove = element("button", { type: "button", click: () => { group.remove(); this.#tidy(); this.#write(); } }, "Remove");
    const group = element("fieldset", { "data-suffix": suffix },
      element("legend", {}, suffix ? `Group ${suffix}` : "Any provider of the host"), inputs, suffix ? remove : null);
    return group;
  }

  #tidy() {
    this.policyField.hidden = this.groups.children.length < 3 && !this.policy.value;
  }

  #write() {
    const pairs = [...this.groups.children].flatMap((group) => (
      [...group.querySelectorAll("input")].flatMap((input) => {
        const name = `${input.dataset.name}${group.dataset.suffix}`;
        const value = input.value.replaceAll(/\s+/g, "");
        return [input.dataset.name === "resources" ? amounts(value) : value, ...JSON.parse(input.dataset.more)].map((value) => [name, value]);
      })));
    this.query.value = written([...pairs, ["group_policy", this.policy.value], ...this.others]);
  }
}

// A small lint for the scripts of the report: node --expose-internals tools/check_page.js
//
// The page is one file: its scripts are joined in the order of cel/report/html.py and share one scope.
// Node's own parser (acorn) reads them, so nothing has to be installed. Reported are: syntax errors,
// names that nobody declares, names declared twice or never used, `var`, `==`, `eval`, `innerHTML`, and
// leftovers such as `console.log` and `debugger`.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const acorn = require("internal/deps/acorn/acorn/dist/acorn");
const walk = require("internal/deps/acorn/acorn-walk/dist/walk");

const root = path.dirname(__dirname);
const assets = path.join(root, "src", "cel", "report", "assets");
const BROWSER = new Set([
  "window", "document", "location", "history", "navigator", "localStorage", "sessionStorage", "Plotly",
  "console", "setTimeout", "clearTimeout", "requestAnimationFrame", "cancelAnimationFrame", "matchMedia",
  "getComputedStyle", "getSelection", "Event", "CustomEvent", "Blob", "URL", "URLSearchParams", "ResizeObserver",
  "IntersectionObserver", "MutationObserver", "Node", "Element", "HTMLElement", "DOMParser", "atob", "btoa",
  "DecompressionStream", "Response", "TextDecoder", "TextEncoder", "structuredClone", "scrollTo",
  "addEventListener", "queueMicrotask", "Image", "XMLSerializer", "undefined", "NaN", "Infinity", "arguments", "CSS", "innerWidth",
]);
const problems = [];

function report(file, node, text) {
  problems.push(`${file}:${node.loc.start.line}: ${text}`);
}

function parse(file, source) {
  try {
    return acorn.parse(source, { ecmaVersion: "latest", sourceType: "script", locations: true });
  } catch (error) {
    problems.push(`${file}:${error.loc ? error.loc.line : "?"}: ${error.message}`);
    return null;
  }
}

// All names that a pattern (x, {a, b: [c]}, ...rest) binds.
function bound(pattern, out = []) {
  if (!pattern) return out;
  if (pattern.type === "Identifier") out.push(pattern);
  else if (pattern.type === "ObjectPattern") pattern.properties.forEach((p) => bound(p.value || p.argument, out));
  else if (pattern.type === "ArrayPattern") pattern.elements.forEach((e) => bound(e, out));
  else if (pattern.type === "AssignmentPattern") bound(pattern.left, out);
  else if (pattern.type === "RestElement") bound(pattern.argument, out);
  return out;
}

const isFunction = (node) => /Function/.test(node.type);
const opensScope = (node) =>
  isFunction(node) || /^(Program|BlockStatement|For|Catch|Class|Switch)/.test(node.type);

// The names that a node declares in its own scope, by name.
function declared(node) {
  const names = new Map();
  const add = (identifier) => identifier && names.set(identifier.name, { node: identifier, used: 0 });
  const statements = (list) =>
    list.forEach((s) => {
      const inner = s.type.startsWith("Export") ? s.declaration : s;
      if (inner.type === "VariableDeclaration") inner.declarations.forEach((d) => bound(d.id).forEach(add));
      if (inner.type === "FunctionDeclaration" || inner.type === "ClassDeclaration") add(inner.id);
    });
  if (node.type === "Program" || node.type === "BlockStatement") statements(node.body);
  if (node.type === "SwitchStatement") node.cases.forEach((c) => statements(c.consequent));
  if (isFunction(node)) {
    node.params.forEach((p) => bound(p).forEach(add));
    if (node.type === "FunctionExpression") add(node.id);
  }
  if (node.type === "CatchClause") bound(node.param).forEach(add);
  if (/^For/.test(node.type)) {
    const head = node.type === "ForStatement" ? node.init : node.left;
    if (head && head.type === "VariableDeclaration") head.declarations.forEach((d) => bound(d.id).forEach(add));
  }
  return names;
}

function names(file, tree, shared) {
  const scopes = new Map();
  walk.fullAncestor(tree, (node, _, ancestors) => {
    if (node.type !== "Identifier") return;
    const parent = ancestors[ancestors.length - 2];
    const isName =
      (parent.type === "MemberExpression" && parent.property === node && !parent.computed) ||
      (parent.type === "Property" && parent.key === node && !parent.computed && !parent.shorthand) ||
      parent.type === "LabeledStatement" || parent.type === "MethodDefinition";
    if (isName) return;
    for (let i = ancestors.length - 2; i >= 0; i--) {
      const scope = ancestors[i];
      if (!opensScope(scope) || scope === tree) continue;
      if (!scopes.has(scope)) scopes.set(scope, declared(scope));
      const found = scopes.get(scope).get(node.name);
      if (found) {
        if (found.node !== node) found.used += 1;
        return;
      }
    }
    const global = shared.get(node.name);
    if (global) global.used += global.node === node ? 0 : 1;
    else if (!BROWSER.has(node.name) && !(node.name in globalThis))
      report(file, node, `nobody declares ${node.name}`);
  });
  for (const [scope, found] of scopes)
    for (const [name, { node, used }] of found) {
      const parameter = isFunction(scope) && scope.params.some((p) => bound(p).includes(node));
      if (!used && !parameter && !name.startsWith("_")) report(file, node, `${name} is never used`);
    }
}

function style(file, tree) {
  walk.full(tree, (node) => {
    if (node.type === "VariableDeclaration" && node.kind === "var") report(file, node, "use const or let");
    if (node.type === "BinaryExpression" && /^[!=]=$/.test(node.operator)) {
      const nothing = [node.left, node.right].some((s) => s.type === "Literal" && s.value === null);
      if (!nothing) report(file, node, `use ${node.operator}= instead of ${node.operator}`);
    }
    if (node.type === "DebuggerStatement") report(file, node, "debugger");
    if (node.type === "CallExpression" && node.callee.name === "eval") report(file, node, "eval");
    if (node.type === "MemberExpression" && !node.computed) {
      const name = node.property.name;
      if (["innerHTML", "outerHTML", "insertAdjacentHTML"].includes(name))
        report(file, node, `${name} takes text for markup; use textContent or elements`);
      if (node.object.name === "console" && name === "log") report(file, node, "console.log");
    }
  });
}

const html = fs.readFileSync(path.join(root, "src", "cel", "report", "html.py"), "utf8");
const order = [...html.matchAll(/"(\w+\.js)"/g)].map((m) => m[1]);
const present = fs.readdirSync(assets).filter((n) => n.endsWith(".js"));
for (const file of present) if (!order.includes(file)) problems.push(`${file}: html.py does not include it`);

const shared = new Map();
const trees = [];
for (const file of order) {
  const tree = parse(file, fs.readFileSync(path.join(assets, file), "utf8"));
  if (!tree) continue;
  trees.push([file, tree]);
  for (const [name, entry] of declared(tree)) {
    if (shared.has(name)) report(file, entry.node, `${name} is also declared in ${shared.get(name).file}`);
    shared.set(name, { ...entry, file });
  }
}
for (const [file, tree] of trees) {
  names(file, tree, shared);
  style(file, tree);
}
for (const [name, { node, used, file }] of shared) if (!used) report(file, node, `${name} is never used`);

problems.sort().forEach((line) => process.stderr.write(`${line}\n`));
process.stdout.write(`page: ${trees.length} scripts, ${problems.length} problems\n`);
process.exitCode = problems.length ? 1 : 0;

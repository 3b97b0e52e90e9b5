// Asking the server, and putting what it says onto the page. Names of devices are only ever text nodes and attributes.

/** Asks for JSON. An error of the server is an Error with its words. */
export async function ask(path, parameters = {}) {
  const said = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null);
  const query = new URLSearchParams(said).toString();
  const reply = await fetch(path + (query ? `?${query}` : ""), { credentials: "same-origin" });
  const answer = await reply.json().catch(() => ({ error: `the server says ${reply.status}` }));
  if (!reply.ok) throw new Error(answer.error || `the server says ${reply.status}`);
  return answer;
}

/** An element. Properties that are functions listen; others are attributes; true stands for an empty one. */
export function el(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(key, value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Puts these in the place of what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

/** Says something to those who do not see it. */
export function say(text) {
  const element = document.getElementById("says");
  if (element.textContent !== text) element.textContent = text;
}

/** The address of a view: `#/page?…`. */
export function address(page, parameters = {}) {
  const said = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(said).toString();
  return `#/${page}${query ? `?${query}` : ""}`;
}

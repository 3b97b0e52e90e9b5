// Requests to the server, and DOM helpers. Names of devices are only inserted as text nodes and attributes.

/** Requests JSON. Throws an Error with the message of the server. */
export async function request(path, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null);
  const query = new URLSearchParams(given).toString();
  const reply = await fetch(path + (query ? `?${query}` : ""), { credentials: "same-origin" });
  const answer = await reply.json().catch(() => ({ error: `the server returned ${reply.status}` }));
  if (!reply.ok) throw new Error(answer.error || `the server returned ${reply.status}`);
  return answer;
}

/** Creates an element. Functions become event listeners, other properties attributes; true is an empty attribute. */
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

/** Replaces the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

/** Announces a text to screen readers. */
export function announce(text) {
  const element = document.getElementById("announcer");
  if (element.textContent !== text) element.textContent = text;
}

/** Returns the URL of a view: `#/page?…`. */
export function pageUrl(page, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(given).toString();
  return `#/${page}${query ? `?${query}` : ""}`;
}

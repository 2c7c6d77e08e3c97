// Shows what /readyz says, every two seconds while somebody looks.
"use strict";

const text = (tag, name, content) => {
  const element = document.createElement(tag);
  element.className = name;
  element.textContent = content;
  return element;
};

const row = ({ name, phase, detail, seconds }) => {
  const item = text("li", phase, "");
  item.append(text("strong", "name", name), text("span", "detail", detail || phase));
  item.append(text("span", "seconds", phase === "ready" ? `${seconds.toFixed(1)} s` : ""));
  return item;
};

const show = (badge, services, version) => {
  const state = document.getElementById("state");
  state.className = `badge ${badge}`;
  state.textContent = badge;
  if (services) document.getElementById("services").replaceChildren(...services.map(row));
  if (version) document.getElementById("version").textContent = `thence ${version}`;
};

const look = async () => {
  try {
    const body = await (await fetch("/readyz", { cache: "no-store" })).json();
    show(body.status, body.services, body.version);
  } catch {
    show("unready", [{ name: "thence", phase: "failed", detail: "does not answer; is it stopped?", seconds: 0 }]);
  }
};

look();
setInterval(() => document.hidden || look(), 2000);

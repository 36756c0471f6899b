// A conversation with a model of this server, over its own /v1/chat/completions.
import { readEvents } from "./events.js";

const part = (id) => document.getElementById(id);
const conversation = part("conversation");
let messages = []; // what has been asked and answered
let running = null; // the AbortController of the answer that is being read

const headers = () => ({
  "content-type": "application/json",
  ...(part("key").value && { authorization: `Bearer ${part("key").value}` }),
});

async function failure(response) {
  const body = await response.json().catch(() => null);
  return new Error(body?.error?.message ?? `${response.status} ${response.statusText}`);
}

async function listModels() {
  const response = await fetch("v1/models", { headers: headers() });
  if (!response.ok) throw await failure(response);
  const models = (await response.json()).data.filter((model) => model.task === "generate");
  part("model").replaceChildren(...models.map((model) => new Option(model.id)));
}

function show(role) {
  const article = document.createElement("article");
  article.className = role;
  conversation.append(article);
  return article;
}

function add(article, kind) {
  const element = document.createElement(kind === "note" ? "small" : "div");
  element.className = kind;
  article.append(element);
  return element;
}

// Appends a piece, and follows it only where the end was in view.
function write(element, text) {
  const { scrollHeight, scrollTop, clientHeight } = conversation;
  element.textContent += text;
  if (scrollHeight - scrollTop - clientHeight < 80) conversation.scrollTop = conversation.scrollHeight;
}

function request() {
  const system = part("system").value.trim();
  const { value: temperature } = part("temperature");
  const { value: most } = part("max-tokens");
  return {
    model: part("model").value,
    messages: [...(system ? [{ role: "system", content: system }] : []), ...messages],
    stream: true,
    stream_options: { include_usage: true },
    ...(temperature && { temperature: Number(temperature) }),
    ...(most && { max_tokens: Number(most) }),
  };
}

function speed(usage, began, first) {
  if (!usage) return "";
  const seconds = (performance.now() - first) / 1000;
  const rate = usage.completion_tokens > 1 ? (usage.completion_tokens - 1) / seconds : 0;
  const each = rate ? `, ${rate.toFixed(1)} a second` : "";
  return `${usage.completion_tokens} tokens${each}, the first after ${Math.round(first - began)} ms`;
}

async function answer(article, exchange) {
  const began = performance.now();
  const response = await fetch("v1/chat/completions", {
    method: "POST",
    headers: headers(),
    body: JSON.stringify(request()),
    signal: running.signal,
  });
  if (!response.ok) throw await failure(response);
  const texts = {};
  let content = "", first = 0, usage = null, finish = null;
  try {
    for await (const chunk of readEvents(response.body)) {
      if (chunk.error) throw new Error(chunk.error.message);
      usage = chunk.usage ?? usage;
      const [choice] = chunk.choices;
      finish = choice?.finish_reason ?? finish;
      for (const kind of ["reasoning_content", "content"]) {
        const text = choice?.delta?.[kind];
        if (!text) continue;
        first ||= performance.now();
        texts[kind] ??= add(article, kind === "content" ? "content" : "reasoning");
        write(texts[kind], text);
        if (kind === "content") content += text;
      }
    }
  } finally {
    // What came before it was stopped or failed is part of the conversation too.
    if (content) exchange.push({ role: "assistant", content });
  }
  const cut = finish === "length" ? ", cut off at the limit" : "";
  write(add(article, "note"), speed(usage, began, first || performance.now()) + cut);
}

async function ask(text) {
  const exchange = messages;
  exchange.push({ role: "user", content: text });
  write(add(show("user"), "content"), text);
  const asked = exchange.length;
  const article = show("assistant");
  running = new AbortController();
  part("send").textContent = "Stop";
  try {
    await answer(article, exchange);
  } catch (error) {
    const stopped = error.name === "AbortError";
    write(add(article, stopped ? "note" : "error"), stopped ? "stopped" : error.message);
  } finally {
    if (exchange.length === asked) exchange.pop(); // never answered: it may be asked again
    running = null;
    part("send").textContent = "Send";
  }
}

part("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running) return running.abort();
  const text = part("text").value.trim();
  if (!text) return;
  part("text").value = "";
  ask(text);
});

part("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!running) part("ask").requestSubmit();
});

part("new").addEventListener("click", () => {
  running?.abort();
  messages = [];
  conversation.replaceChildren();
});

function begin() {
  listModels().catch((error) => write(add(show("assistant"), "error"), error.message));
}

part("key").addEventListener("change", begin);
begin();

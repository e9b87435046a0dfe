import { mount } from "svelte";
import "uplot/dist/uPlot.min.css";
import App from "./App.svelte";
import "./app.css";

// The page's address changes without the page: what is relative to it must be made fast.
for (const link of document.querySelectorAll<HTMLLinkElement>("link[href]"))
  link.setAttribute("href", link.href);

const target = document.getElementById("app");
if (target) mount(App, { target });

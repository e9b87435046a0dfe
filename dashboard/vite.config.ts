import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

export default defineConfig({
  // Addresses relative to the page: the server says where that is.
  base: "./",
  plugins: [svelte()],
  build: {
    target: "es2023",
    // Nothing inline, so that the Content-Security-Policy needs no exception.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    emptyOutDir: true,
    rolldownOptions: { checks: { pluginTimings: false } },
  },
  server: {
    // For `npx vite`, which reloads what is edited, beside a server on its usual port.
    proxy: { "/api": "http://127.0.0.1:8420", "/ws": { target: "ws://127.0.0.1:8420", ws: true } },
  },
  test: { include: ["src/**/*.test.ts"], environment: "node" },
});

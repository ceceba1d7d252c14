"use strict";
// Shows only the first rows of a long table until the reader asks for all; on paper and without this script all show.
document.querySelectorAll("table[data-table]").forEach(function (table) {
  var rows = table.tBodies[0].rows.length;
  if (rows <= 14) { return; }
  var button = document.createElement("button");
  button.type = "button";
  button.className = "all";
  button.setAttribute("aria-expanded", "false");
  button.textContent = "Show all " + rows + " rows";
  button.addEventListener("click", function () {
    var isShort = table.classList.toggle("short");
    button.setAttribute("aria-expanded", String(!isShort));
    button.textContent = isShort ? "Show all " + rows + " rows" : "Show fewer rows";
  });
  table.classList.add("short");
  table.closest(".scroll").after(button);
});
// Sorts a table by the raw values in data-v; empty values stay last in both directions.
document.querySelectorAll("table[data-table] thead button").forEach(function (button) {
  button.addEventListener("click", function () {
    var heading = button.closest("th");
    var body = button.closest("table").tBodies[0];
    var column = heading.cellIndex;
    var isNumber = heading.classList.contains("n");
    var now = heading.getAttribute("aria-sort");
    // the first click sorts numbers from the largest and text from A
    var isDown = now === null ? isNumber : now === "ascending";
    heading.parentNode.querySelectorAll("th").forEach(function (other) { other.removeAttribute("aria-sort"); });
    heading.setAttribute("aria-sort", isDown ? "descending" : "ascending");
    Array.from(body.rows).sort(function (first, second) {
      var a = first.cells[column].dataset.v;
      var b = second.cells[column].dataset.v;
      if (a === "" || b === "") { return (a === "") - (b === ""); }
      var asNumber = isNumber && !isNaN(a) && !isNaN(b);
      var order = asNumber ? Number(a) - Number(b) : a.localeCompare(b, "en", { numeric: true });
      return isDown ? -order : order;
    }).forEach(function (row) { body.appendChild(row); });
  });
});
// Opens the section that a link of the contents leads to, and all sections when printing.
(function () {
  var openTarget = function () {
    var place = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    var fold = place && place.querySelector("details");
    if (fold && place.tagName === "SECTION") { fold.open = true; place.scrollIntoView(); }
  };
  var links = document.querySelectorAll(".contents a");
  links.forEach(function (link) { link.addEventListener("click", function () { setTimeout(openTarget); }); });
  window.addEventListener("hashchange", openTarget);
  openTarget();
  var opened = [];
  window.addEventListener("beforeprint", function () {
    opened = Array.from(document.querySelectorAll("details:not([open])"));
    opened.forEach(function (fold) { fold.open = true; });
  });
  window.addEventListener("afterprint", function () { opened.forEach(function (fold) { fold.open = false; }); });
  document.querySelectorAll(".contents").forEach(function (contents) {
    var folds = Array.from(contents.closest("article").querySelectorAll("details"));
    if (!folds.length) { return; }
    var button = document.createElement("button");
    button.type = "button";
    button.className = "all";
    button.textContent = "Open all";
    button.addEventListener("click", function () {
      var isOpen = button.textContent === "Open all";
      folds.forEach(function (fold) { fold.open = isOpen; });
      button.textContent = isOpen ? "Close all" : "Open all";
    });
    contents.append(button);
  });
}());

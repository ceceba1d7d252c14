// The filters: adds up the embedded cells of what is chosen. Counts and sums are exact, percentiles to one class.
document.querySelectorAll(".explore").forEach(function (place) {
  var data = JSON.parse(place.querySelector("script").textContent);
  var tag = function (name, text, kind) {
    var made = document.createElement(name);
    if (text !== undefined) { made.textContent = text; }
    if (kind) { made.className = kind; }
    return made;
  };
  var count = function (value) { return Math.round(value).toLocaleString("en-US"); };
  var percent = function (part, of) { return of ? (100 * part / of).toFixed(1) + " %" : "–"; };
  var hours = function (seconds) { var h = seconds / 3600; return h >= 100 ? count(h) : String(Number(h.toPrecision(3))); };
  var duration = function (s) {
    if (s === null) { return "–"; }
    if (s < 59.5) { return Math.round(s) + " s"; }
    var m = Math.round(s / 60);
    if (m < 60) { return m + " min"; }
    if (m < 2880) { return Math.floor(m / 60) + " h" + (m % 60 ? " " + m % 60 + " min" : ""); }
    var h = Math.round(m / 60);
    return count(Math.floor(h / 24)) + " d" + (h % 24 ? " " + h % 24 + " h" : "");
  };
  // where class k of the waits begins, s
  var begin = function (k) { return k < data.exact_s ? k : data.exact_s * Math.pow(data.ratio, k - data.exact_s); };
  var quantile = function (classes, share) {
    var total = 0, passed = 0;
    Object.keys(classes).forEach(function (k) { total += classes[k]; });
    if (!total) { return null; }
    var keys = Object.keys(classes).map(Number).sort(function (a, b) { return a - b; });
    for (var i = 0; i < keys.length; i += 1) {
      var here = classes[keys[i]];
      if (passed + here >= share * total) {
        var from = begin(keys[i]);
        var width = keys[i] < data.exact_s ? 0 : begin(keys[i] + 1) - from;
        return from + width * (share * total - passed) / here;
      }
      passed += here;
    }
    return null;
  };
  var none = function () { return data.sums.map(function () { return 0; }); };
  var add = function (sums, cell) { cell[3].forEach(function (value, i) { sums[i] += value; }); };
  var of = function (sums, name) { return sums[data.sums.indexOf(name)]; };
  var pick = {};
  place.querySelectorAll("select").forEach(function (select) { pick[select.dataset.pick] = select; });
  var fill = function (select, names, all) {
    if (all) { select.append(new Option(all, "")); }
    names.forEach(function (name, i) { select.append(new Option(name, i)); });
  };
  fill(pick.user, data.users, "all " + count(data.users.length));
  fill(pick.part, data.partitions, "all " + count(data.partitions.length));
  var days = data.periods.map(function (at) { return data.step === "hour" ? at : at.slice(0, 10); });
  fill(pick.from, days);
  fill(pick.to, days);
  ["users", "partitions", "periods"].forEach(function (name) {
    place.querySelectorAll("[data-of=" + name + "]").forEach(function (label) { label.hidden = data[name].length < 2; });
  });
  var reset = function () {
    pick.user.value = pick.part.value = "";
    pick.from.value = 0;
    pick.to.value = days.length - 1;
  };
  var tiles = function (sums, classes) {
    var box = place.querySelector(".tiles");
    box.replaceChildren();
    [
      ["jobs", count(of(sums, "jobs")), count(of(sums, "ran")) + " ran"],
      ["median wait", duration(quantile(classes, 0.5)), "of jobs that ran"],
      ["95th percentile of the wait", duration(quantile(classes, 0.95)), "of jobs that ran"],
      ["over 10 minutes", percent(of(sums, "long"), of(sums, "waited")), "of jobs that ran"],
      ["GPU hours", of(sums, "gpu_time_s") ? hours(of(sums, "gpu_time_s")) : "–", "held by these jobs"],
      ["completed", percent(of(sums, "done"), of(sums, "ran")), "of jobs that ran"],
    ].forEach(function (values) {
      var tile = tag("div", undefined, "tile");
      tile.append(tag("div", values[0], "label"), tag("div", values[1], "value"), tag("div", values[2], "muted"));
      box.append(tile);
    });
  };
  var causes = function (sums) {
    var box = place.querySelector(".causes");
    box.replaceChildren();
    var total = of(sums, "wait_s");
    data.causes.forEach(function (cause) {
      var part = of(sums, cause.sum);
      if (!total || !part) { return; }
      var item = tag("span", cause.name + " " + percent(part, total));
      item.style.borderColor = "var(--c-" + cause.tint + ")";
      box.append(item);
    });
    if (box.childNodes.length) { box.prepend("Waited for: "); }
  };
  var plot = function (periods) {
    var box = place.querySelector(".plot");
    var svg = box.querySelector("svg"), space = svg.namespaceURI;
    svg.replaceChildren();
    var shape = function (name, values, text) {
      var made = document.createElementNS(space, name);
      Object.keys(values).forEach(function (key) { made.setAttribute(key, values[key]); });
      if (text !== undefined) { made.textContent = text; }
      svg.append(made);
    };
    var series = data.causes.length ? data.causes : [{ sum: "wait_s", tint: "recorded" }];
    var most = Math.max(1, Math.max.apply(null, periods.map(function (p) { return of(p.sums, "wait_s"); })));
    var width = 450 / periods.length;
    periods.forEach(function (p, i) {
      var y = 160;
      series.forEach(function (one) {
        var height = 145 * of(p.sums, one.sum) / most;
        y -= height;
        shape("rect", { x: (5 + i * width).toFixed(2), y: y.toFixed(2), width: Math.max(0.5, 0.86 * width).toFixed(2),
          height: height.toFixed(2), style: "fill:var(--c-" + one.tint + ")" });
      });
    });
    shape("rect", { x: 5, y: 160, width: 450, height: 1, style: "fill:var(--c-muted)" });
    var words = { style: "fill:var(--c-muted);font-size:11px" };
    if (periods.length) {
      shape("text", Object.assign({ x: 5, y: 178 }, words), periods[0].name);
      shape("text", Object.assign({ x: 455, y: 178, "text-anchor": "end" }, words), periods[periods.length - 1].name);
      shape("text", Object.assign({ x: 5, y: 11 }, words), "at most " + hours(most) + " h");
    }
    box.setAttribute("aria-label", "Hours waited by " + data.step + " of submission, in what is chosen");
    place.querySelector(".over").textContent = "Hours waited, by " + data.step + " of submission";
  };
  var ranked = function (groups, names, what, total) {
    place.querySelector(".most").textContent = "Most waiting, by " + what;
    var head = tag("tr");
    [what, "jobs", "hours waited", "of these", "GPU hours"].forEach(function (label, i) {
      head.append(tag("th", label, i ? "n" : ""));
    });
    var body = place.querySelector(".ranked tbody");
    place.querySelector(".ranked thead").replaceChildren(head);
    body.replaceChildren();
    Object.keys(groups).sort(function (a, b) {
      return of(groups[b], "wait_s") - of(groups[a], "wait_s") || of(groups[b], "jobs") - of(groups[a], "jobs");
    }).slice(0, 6).forEach(function (key) {
      var sums = groups[key], row = tag("tr"), name = tag("td");
      name.append(tag("bdi", names[key]));
      row.append(name);
      [count(of(sums, "jobs")), hours(of(sums, "wait_s")), percent(of(sums, "wait_s"), total),
        of(sums, "gpu_time_s") ? hours(of(sums, "gpu_time_s")) : "–"].forEach(function (value) { row.append(tag("td", value, "n")); });
      body.append(row);
    });
  };
  var show = function () {
    if (Number(pick.from.value) > Number(pick.to.value)) { pick.to.value = pick.from.value; }
    var user = pick.user.value, part = pick.part.value, from = Number(pick.from.value), to = Number(pick.to.value);
    var isAllTime = from === 0 && to === days.length - 1 || !days.length;
    var sums = none(), all = none(), classes = {}, groups = {};
    var byPartition = user !== "" && data.partitions.length > 1;
    var periods = days.slice(from, to + 1).map(function (name) { return { name: name, sums: none() }; });
    data.cells.forEach(function (cell) {
      add(all, cell);
      if (user !== "" && cell[0] !== Number(user) || part !== "" && cell[1] !== Number(part)) { return; }
      if (!isAllTime && (cell[2] < from || cell[2] > to)) { return; }
      add(sums, cell);
      if (cell[2] >= 0) { add(periods[cell[2] - from].sums, cell); }
      var key = byPartition ? cell[1] : cell[0];
      groups[key] = groups[key] || none();
      add(groups[key], cell);
      for (var i = 0; i < cell[4].length; i += 2) { classes[cell[4][i]] = (classes[cell[4][i]] || 0) + cell[4][i + 1]; }
    });
    var chosen = [];
    if (user !== "") { chosen.push("user " + data.users[user]); }
    if (part !== "") { chosen.push("partition " + data.partitions[part]); }
    if (!isAllTime) { chosen.push(from === to ? "the " + data.step + " of " + days[from] : days[from] + " up to the " + data.step + " of " + days[to]); }
    place.classList.toggle("filtered", chosen.length > 0);
    place.querySelector(".clear").hidden = place.querySelector(".found").hidden = !chosen.length;
    place.querySelector(".status").textContent = chosen.length
      ? "Filtered: " + chosen.join(", ") + ". " + count(of(sums, "jobs")) + " of " + count(of(all, "jobs")) + " jobs."
      : "Nothing is filtered: everything here is about all " + count(of(all, "jobs")) + " jobs.";
    if (!chosen.length) { return; }
    tiles(sums, classes);
    causes(sums);
    plot(periods);
    ranked(groups, byPartition ? data.partitions : data.users, byPartition ? "partition" : "user", of(sums, "wait_s"));
  };
  place.addEventListener("change", show);
  place.querySelector(".clear").addEventListener("click", function () { reset(); show(); });
  reset();
  show();
  place.hidden = false;
});

// The filters of each cluster: draws the selection, and marks the parts of the page that are not filtered.
document.querySelectorAll("article").forEach(function (article) {
  var packed = article.querySelector(".explore script");
  if (!packed) { return; }
  var found = article.querySelector(".found"), pick = {}, data;
  var tag = function (name, text, kind) {
    var made = document.createElement(name);
    if (text !== undefined) { made.textContent = text; }
    if (kind) { made.className = kind; }
    return made;
  };
  var named = function (name) { var made = tag("td"); made.append(tag("bdi", name)); return made; };
  var drawn = function (parent, name, values, text) {
    var made = document.createElementNS(found.querySelector("svg").namespaceURI, name);
    Object.keys(values).forEach(function (key) { made.setAttribute(key, values[key]); });
    if (text !== undefined) { made.textContent = text; }
    parent.append(made);
    return made;
  };
  var sum = function (name) { return function (group) { return group.sums[name] || 0; }; };
  var ratio = function (part, whole) {
    return function (group) { return sum(whole)(group) ? sum(part)(group) / sum(whole)(group) : null; };
  };
  var quantile = function (share) { return function (group) { return baton.quantiles(group, [share])[0]; }; };
  var share = function (value) { return value === null ? "–" : baton.percent(value, 1); };

  // label, value of a group, format, meaning, how it was counted
  var tiles = function () {
    return [
      ["jobs", sum("jobs"), baton.count, "submitted", "The chosen jobs, whether they ran or not."],
      ["median wait", quantile(0.5), baton.duration, "of jobs that ran", "Start minus submission; half of them waited less."],
      ["95th percentile of the wait", quantile(0.95), baton.duration, "of jobs that ran",
        "Linear interpolation between the two nearest sorted waits."],
      ["over 10 minutes", ratio("long", "waited"), share, "of jobs that ran", "Jobs that waited over 10 minutes, divided by all jobs with a wait."],
      [data.held.name, sum(data.held.sum), function (s) { return s ? baton.hours(s) : "–"; }, "held by these jobs",
        "Everything that the chosen jobs held, also outside the chosen period."],
      ["completed", ratio(data.completed.part, data.completed.whole), share, data.completed.meaning,
        "Jobs in state COMPLETED, divided by all jobs with a known final state."],
    ];
  };
  var trend = function (tile, of, show, periods) {
    var known = periods.filter(function (p) { return p.sums.jobs; })
      .map(function (p) { return { name: p.name, value: of(p) }; }).filter(function (p) { return p.value !== null; });
    if (known.length < 3) { return; }
    var values = known.map(function (p) { return p.value; });
    var low = Math.min.apply(null, values), high = Math.max.apply(null, values);
    var box = tag("div", undefined, "trend"), scale = tag("div", undefined, "scale"), dates = tag("div", undefined, "dates");
    var svg = drawn(box, "svg", { class: "spark", viewBox: "0 0 100 28", preserveAspectRatio: "none", "aria-hidden": true });
    drawn(svg, "polyline", { fill: "none", stroke: "currentColor", "stroke-width": 1.6, "vector-effect": "non-scaling-stroke",
      points: values.map(function (value, i) {
        return (100 * i / (values.length - 1)).toFixed(1) + "," + (24 - 20 * (value - low) / (high - low || 1)).toFixed(1);
      }).join(" ") });
    scale.append(tag("span", show(high)), tag("span", show(low)));
    dates.append(tag("span", known[0].name), tag("span", known[known.length - 1].name));
    box.append(scale);
    tile.append(box, dates, tag("div", "by " + data.step + " of submission", "muted"));
  };
  var showTiles = function (group, periods) {
    found.querySelector(".tiles").replaceChildren.apply(found.querySelector(".tiles"), tiles().map(function (one) {
      var tile = tag("div", undefined, "tile"), counted = tag("div", undefined, "counted"), value = one[1](group);
      var shown = tag("div", one[2](value), "value");
      shown.dataset.v = value;
      counted.append(tag("b", "How this was counted:"), " " + one[4]);
      tile.append(tag("div", one[0], "label"), shown, tag("div", one[3], "muted"));
      trend(tile, one[1], one[2], periods);
      tile.append(counted);
      return tile;
    }));
  };
  var parts = function (seconds) { // shares of a wait by cause, in the order of data.causes
    var whole = seconds.reduce(function (a, b) { return a + b; }, 0), box = tag("div", undefined, "causes");
    data.causes.forEach(function (cause, i) {
      if (!whole || !seconds[i]) { return; }
      var item = tag("span", cause.name + " " + (seconds[i] < whole / 2000 ? "under 0.1 %" : baton.percent(seconds[i], whole)));
      item.style.borderColor = "var(--c-" + cause.tint + ")";
      box.append(item);
    });
    if (box.childNodes.length) { box.prepend("Waited for: "); }
    return box;
  };
  var plot = function (periods) {
    var box = found.querySelector(".plot"), svg = box.querySelector("svg");
    svg.replaceChildren();
    var series = data.causes.length ? data.causes : [{ sum: "wait_s", tint: "recorded" }];
    var heights = periods.map(function (p) { return series.reduce(function (y, one) { return y + sum(one.sum)(p); }, 0); });
    var most = Math.max(1, Math.max.apply(null, heights)), width = 450 / periods.length;
    periods.forEach(function (p, i) {
      var y = 160;
      series.forEach(function (one) {
        var height = 145 * sum(one.sum)(p) / most;
        y -= height;
        drawn(svg, "rect", { x: (5 + i * width).toFixed(2), y: y.toFixed(2), width: Math.max(0.5, 0.86 * width).toFixed(2),
          height: height.toFixed(2), style: "fill:var(--c-" + one.tint + ")" });
      });
    });
    drawn(svg, "rect", { x: 5, y: 160, width: 450, height: 1, style: "fill:var(--c-muted)" });
    var words = { style: "fill:var(--c-muted);font-size:11px" };
    if (periods.length) {
      drawn(svg, "text", Object.assign({ x: 5, y: 178 }, words), periods[0].name);
      drawn(svg, "text", Object.assign({ x: 455, y: 178, "text-anchor": "end" }, words), periods[periods.length - 1].name);
      drawn(svg, "text", Object.assign({ x: 5, y: 11 }, words), "at most " + baton.hours(most) + " h");
    }
    box.setAttribute("aria-label", "Hours waited by " + data.step + " of submission, in the selection");
    found.querySelector(".over").textContent = "Hours waited, by " + data.step + " of submission";
  };
  var heads = function (table, labels) {
    var row = tag("tr");
    labels.forEach(function (label, i) { row.append(tag("th", label, i ? "n" : "")); });
    table.querySelector("thead").replaceChildren(row);
  };
  var ranked = function (groups, names, what, select, total) {
    var table = found.querySelector(".ranked"), body = table.tBodies[0];
    found.querySelector(".most").textContent = "Most waiting, by " + what;
    table.closest("figure").hidden = Object.keys(groups).length < 2;
    heads(table, [what, "jobs", "hours waited", "of these", data.held.name]);
    body.replaceChildren();
    baton.byWaiting(groups).slice(0, 6).forEach(function (place) {
      var sums = groups[place].sums, row = tag("tr"), name = tag("td"), button = tag("button", undefined, "pick");
      button.type = "button";
      button.append(tag("bdi", names[place]));
      button.addEventListener("click", function () { select.value = place; show(); });
      name.append(button);
      row.append(name);
      [baton.count(sums.jobs), baton.hours(sums.wait_s), baton.percent(sums.wait_s, total),
        sums[data.held.sum] ? baton.hours(sums[data.held.sum]) : "–"].forEach(function (value) { row.append(tag("td", value, "n")); });
      body.append(row);
    });
  };
  // The jobs of the chosen user that waited longest, each with the output of `baton explain`.
  var jobs = function (choice) {
    var box = found.querySelector(".jobs"), own = data.longest.filter(function (job) { return job[0] === choice.user; });
    var chosen = own.filter(function (job) { return baton.isChosen(data, choice, job); });
    box.replaceChildren(tag("h3", "Jobs that waited longest"));
    if (choice.user === null) {
      box.append(tag("p", "Choose a user to see which of their jobs waited longest, and why.", "muted"));
      return;
    }
    box.append(tag("p", own.length ? chosen.length + " of the " + own.length
      + " jobs of this user that waited longest in the whole log are in the selection." : "No job of this user waited, or the "
      + "page does not contain them.", "muted"));
    chosen.forEach(function (job) {
      var fold = tag("details", undefined, "job"), head = tag("summary"), command = tag("p", job[8] ? "With a replay: " : "Explain it: ");
      head.append(tag("b", "job " + job[3]), " waited " + baton.duration(job[4]) + ", " + job[6]);
      command.append(tag("code", job[7]));
      fold.append(head, parts(job[5]));
      if (job[8]) { fold.append(tag("pre", job[8])); }
      fold.append(command);
      box.append(fold);
    });
  };
  // Columns of the page's tables that these numbers can fill: value of a group, and format.
  var columns = {
    jobs: [sum("waited"), baton.count],
    never_ran: [function (group) { return group.sums.jobs - group.sums.ran; }, baton.count],
    wait_p50_s: [quantile(0.5), baton.duration], wait_p90_s: [quantile(0.9), baton.duration],
    wait_p95_s: [quantile(0.95), baton.duration], wait_p99_s: [quantile(0.99), baton.duration],
    wait_mean_s: [ratio("wait_s", "waited"), baton.duration], wait_total_s: [sum("wait_s"), baton.duration],
    over_10min_share: [ratio("long", "waited"), share],
  };
  // Tables of waits that the selection can fill: groups of a selection, names of the groups, places in order.
  var tables = {
    by_user_name: [function (selected) { return selected.users; }, function () { return data.users; }, baton.byWaiting],
    by_partition: [function (selected) { return selected.parts; }, function () { return data.partitions; }, baton.byWaiting],
  };
  var addTables = function () {
    data.tables.forEach(function (table, i) {
      tables[table.name] = [function (selected) { return selected.tables[i]; }, function () { return table.values; },
        function (groups) { return Object.keys(groups).map(Number).sort(function (a, b) { return a - b; }); }];
    });
  };
  var tableOf = function (name) { return article.querySelector(".waits table[data-table=" + name + "]"); };
  var refill = function (selected) {
    Object.keys(tables).filter(tableOf).forEach(function (name) {
      var original = tableOf(name), figure = original.closest("figure"), groups = tables[name][0](selected);
      var kept = Array.from(original.querySelectorAll("th")).filter(function (th) { return columns[th.dataset.column]; });
      var scroll = tag("div", undefined, "scroll instead"), table = tag("table");
      table.append(tag("thead"), tag("tbody"));
      heads(table, [original.querySelector("th").textContent].concat(kept.map(function (th) { return th.textContent; })));
      tables[name][2](groups).slice(0, 25).forEach(function (place) {
        var row = tag("tr");
        row.append(named(tables[name][1]()[place]));
        kept.forEach(function (th) {
          var value = columns[th.dataset.column][0](groups[place]), cell = tag("td", columns[th.dataset.column][1](value), "n");
          cell.dataset.v = value;
          row.append(cell);
        });
        table.tBodies[0].append(row);
      });
      scroll.append(table);
      figure.querySelectorAll(".instead").forEach(function (old) { old.remove(); });
      figure.append(scroll, tag("p", "Filtered" + (tables[name][2] === baton.byWaiting ? ": the 25 with the longest total wait" : "") + ". Columns that cannot be filtered are left out.", "muted instead"));
    });
  };
  // Replaces the parts of the page that these numbers can fill, and marks the others as not filtered.
  var mark = function () {
    var badge = function (text) { return tag("span", text, "badge unfiltered"); };
    var labels = tiles().map(function (one) { return one[0]; });
    article.querySelectorAll(".tile[data-tile]").forEach(function (tile) {
      if (labels.indexOf(tile.dataset.tile) >= 0) { tile.classList.add("replaced"); }
      else { tile.querySelector(".label").append(" ", badge("not filtered")); }
    });
    article.querySelectorAll("figure[data-figure=waited]").forEach(function (figure) { figure.classList.add("replaced"); });
    Object.keys(tables).filter(tableOf).forEach(function (name) { tableOf(name).closest("figure").classList.add("refilled"); });
    article.querySelectorAll("section:not(.explore):not(.found)").forEach(function (section) {
      var some = section.querySelectorAll(".refilled").length;
      section.querySelector("h2").append(" ", badge(some ? "not filtered, except " + some + (some > 1 ? " tables" : " table") : "not filtered"));
      section.querySelectorAll("h3").forEach(function (heading) {
        if (!heading.closest(".refilled")) { heading.append(" ", badge("not filtered")); }
      });
    });
  };
  var choice = function () {
    var place = function (select) { return select.value === "" ? null : Number(select.value); };
    if (Number(pick.from.value) > Number(pick.to.value)) { pick.to.value = pick.from.value; }
    return { user: place(pick.user), part: place(pick.part), from: Number(pick.from.value),
      to: data.periods.length ? Number(pick.to.value) : -1 };
  };
  var show = function () {
    var now = choice(), whole = { user: null, part: null, from: 0, to: data.periods.length - 1 }, chosen = [], from = days[now.from];
    if (now.user !== null) { chosen.push("user " + data.users[now.user]); }
    if (now.part !== null) { chosen.push("partition " + data.partitions[now.part]); }
    if (now.from !== whole.from || now.to !== whole.to) {
      chosen.push(now.from === now.to ? "the " + data.step + " of " + from : from + " up to the " + data.step + " of " + days[now.to]);
    }
    article.classList.toggle("filtered", chosen.length > 0);
    article.querySelector(".clear").hidden = found.hidden = !chosen.length;
    var all = data.cells.reduce(function (jobs, cell) { return jobs + cell[3][data.sums.indexOf("jobs")]; }, 0);
    var status = article.querySelector(".status");
    if (!chosen.length) {
      found.querySelector(".jobs").replaceChildren(); // no fold-out of theirs is left to open
      status.textContent = "Nothing is filtered: everything here is about all " + baton.count(all) + " jobs.";
      return;
    }
    var selected = baton.select(data, now), byPartition = now.user !== null && data.partitions.length > 1;
    selected.periods.forEach(function (period, i) { period.name = days[now.from + i]; });
    status.textContent = "Filtered: " + chosen.join(", ") + ". " + baton.count(sum("jobs")(selected.all)) + " of " + baton.count(all) + " jobs.";
    showTiles(selected.all, selected.periods);
    found.querySelector(".causes").replaceWith(parts(data.causes.map(function (cause) { return sum(cause.sum)(selected.all); })));
    plot(selected.periods);
    ranked(byPartition ? selected.parts : selected.users, byPartition ? data.partitions : data.users,
      byPartition ? "partition" : "user", byPartition ? pick.part : pick.user, sum("wait_s")(selected.all));
    jobs(now);
    refill(selected);
  };
  var days;
  var reset = function () {
    pick.user.value = pick.part.value = "";
    pick.from.value = 0;
    pick.to.value = days.length - 1;
  };
  var start = function () {
    var fill = function (select, names, all) {
      if (all) { select.append(new Option(all, "")); }
      names.forEach(function (name, i) { select.append(new Option(name, i)); });
    };
    days = data.periods.map(function (at) { return data.step === "hour" ? at : at.slice(0, 10); });
    article.querySelectorAll("select[data-pick]").forEach(function (select) { pick[select.dataset.pick] = select; });
    fill(pick.user, data.users, "all " + baton.count(data.users.length) + ", by hours waited");
    fill(pick.part, data.partitions, "all " + baton.count(data.partitions.length) + ", by hours waited");
    fill(pick.from, days);
    fill(pick.to, days);
    ["users", "partitions", "periods"].forEach(function (name) {
      article.querySelectorAll("[data-of=" + name + "]").forEach(function (label) { label.hidden = data[name].length < 2; });
    });
    found.querySelector(".notes").textContent = data.notes.join(" ") + " Periods refer to the time of submission (UTC).";
    article.querySelector(".chosen").addEventListener("change", show);
    article.querySelector(".clear").addEventListener("click", function () { reset(); show(); });
    addTables();
    mark();
    reset();
    show();
  };
  baton.unpack(packed.textContent).then(function (content) { data = content; start(); }, function () {
    article.querySelector(".chosen").hidden = true;
    article.querySelector(".status").textContent = "This browser cannot unpack the numbers behind the filters; use a newer one.";
  }).then(function () {
    article.querySelectorAll(".explore, .now").forEach(function (part) { part.hidden = false; });
  });
});

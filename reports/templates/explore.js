// The numbers behind the filters: unpacks them, sums the selection, and formats values as reports.format does.
var baton = {
  // One cluster's numbers: base64 of zlib-compressed JSON (reports.sections.explore).
  unpack: function (text) {
    var bytes = Uint8Array.from(atob(text.trim()), function (letter) { return letter.charCodeAt(0); });
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
  },
  // A group of cells: sums by name, and waits as a map from seconds to the number of jobs.
  group: function () { return { sums: {}, waits: new Map() }; },
  add: function (data, group, cell) {
    data.sums.forEach(function (name, i) { group.sums[name] = (group.sums[name] || 0) + cell[3][i]; });
    for (var i = 0, wait = 0; i < cell[4].length; i += 2) {
      wait += cell[4][i];
      group.waits.set(wait, (group.waits.get(wait) || 0) + cell[4][i + 1]);
    }
  },
  // Percentiles of the waits by linear interpolation between the two nearest sorted waits; nulls without waits.
  quantiles: function (group, shares) {
    var waits = Array.from(group.waits).sort(function (a, b) { return a[0] - b[0]; });
    var total = waits.reduce(function (sum, wait) { return sum + wait[1]; }, 0);
    var at = function (rank) {
      for (var i = 0, passed = 0; i < waits.length; i += 1) {
        passed += waits[i][1];
        if (rank < passed) { return waits[i][0]; }
      }
      return waits[waits.length - 1][0];
    };
    return shares.map(function (share) {
      if (!total) { return null; }
      var rank = share * (total - 1), low = at(Math.floor(rank)), high = at(Math.ceil(rank));
      return low + (high - low) * (rank - Math.floor(rank));
    });
  },
  // Sums of the selection: in total, by period, by user, by partition, and by the values of data.tables. `choice` has user, part (null: all), from, to.
  select: function (data, choice) {
    var found = { all: baton.group(), periods: [], users: {}, parts: {}, tables: data.tables.map(function () { return {}; }) };
    for (var i = choice.from; i <= choice.to; i += 1) { found.periods.push(baton.group()); }
    data.cells.forEach(function (cell) {
      if (!baton.isChosen(data, choice, cell)) { return; }
      var user = found.users[cell[0]] = found.users[cell[0]] || baton.group();
      var part = found.parts[cell[1]] = found.parts[cell[1]] || baton.group();
      var rows = found.tables.map(function (groups, i) { return groups[cell[5 + i]] = groups[cell[5 + i]] || baton.group(); });
      [found.all, user, part].concat(rows).forEach(function (group) { baton.add(data, group, cell); });
      if (cell[2] >= 0) { baton.add(data, found.periods[cell[2] - choice.from], cell); }
    });
    return found;
  },
  // Whether a cell or a job is selected; both begin with user, partition and period (-1: unknown).
  isChosen: function (data, choice, cell) {
    var isAllTime = choice.from === 0 && choice.to >= data.periods.length - 1;
    return (choice.user === null || cell[0] === choice.user) && (choice.part === null || cell[1] === choice.part)
      && (isAllTime || cell[2] >= choice.from && cell[2] <= choice.to);
  },
  // Places of the groups, longest total wait first.
  byWaiting: function (groups) {
    return Object.keys(groups).sort(function (a, b) {
      return groups[b].sums.wait_s - groups[a].sums.wait_s || groups[b].sums.jobs - groups[a].sums.jobs;
    }).map(Number);
  },
  count: function (value) { return Math.round(value).toLocaleString("en-US"); },
  percent: function (part, whole) { return whole ? (100 * part / whole).toFixed(1) + " %" : "–"; },
  hours: function (seconds) {
    var h = seconds / 3600;
    return h >= 100 ? baton.count(h) : String(Number(h.toPrecision(3)));
  },
  duration: function (seconds) {
    if (seconds === null) { return "–"; }
    var sign = seconds < 0 ? "-" : "", s = Math.abs(seconds), m = Math.round(s / 60), h = Math.round(m / 60);
    if (s < 59.5) { return sign + (s < 10 && s !== Math.floor(s) ? s.toFixed(1) : Math.round(s)) + " s"; }
    if (m < 60) { return sign + (s < 570 ? (s / 60).toFixed(1) : m) + " min"; }
    if (m < 2880) { return sign + Math.floor(m / 60) + " h" + (m % 60 ? " " + m % 60 + " min" : ""); }
    return sign + baton.count(Math.floor(h / 24)) + " d" + (h % 24 ? " " + h % 24 + " h" : "");
  },
};

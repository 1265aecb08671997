// Draws the charts of a report (data: #charts, made by report_json.cpp) with Chart.js, in the colours of the page's style.
'use strict';
(() => {
  const charts = JSON.parse(document.getElementById('charts').textContent);
  const narrow = window.matchMedia('(max-width: 600px)');
  const color = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
  const faded = (text, share) => {
    const [r, g, b] = [1, 3, 5].map(n => parseInt(text.slice(n, n + 2), 16));
    return `rgba(${r}, ${g}, ${b}, ${share})`;
  };
  const shorten = (text, most) => text.length > most ? text.slice(0, most - 1) + '…' : text;
  const number = value => Number(value.toPrecision(4)).toLocaleString('en', {maximumSignificantDigits: 4, useGrouping: true});

  // Error bars: of every value that has an interval, except where the interval is drawn as a band.
  const errorBars = {
    id: 'errorBars',
    afterDatasetsDraw(chart) {
      const context = chart.ctx;
      chart.data.datasets.forEach((dataset, index) => {
        if (!dataset.errorBars || !chart.isDatasetVisible(index)) return;
        const scale = chart.scales.y;
        context.save();
        context.strokeStyle = dataset.borderColor;
        context.lineWidth = 1.5;
        dataset.data.forEach((value, n) => {
          if (value.low === undefined) return;
          const x = chart.getDatasetMeta(index).data[n].x;
          const low = scale.getPixelForValue(value.low), high = scale.getPixelForValue(value.high);
          context.beginPath();
          context.moveTo(x, low); context.lineTo(x, high);
          context.moveTo(x - 4, low); context.lineTo(x + 4, low);
          context.moveTo(x - 4, high); context.lineTo(x + 4, high);
          context.stroke();
        });
        context.restore();
      });
    }
  };
  // Limits of bars: a tick across the row.
  const limits = {
    id: 'limits',
    afterDatasetsDraw(chart) {
      const context = chart.ctx;
      chart.data.datasets.forEach((dataset, index) => {
        if (!dataset.limits || !chart.isDatasetVisible(index)) return;
        const {x, y} = chart.scales;
        const half = chart.chartArea.height / Math.max(1, chart.data.labels.length) * 0.42;
        context.save();
        context.strokeStyle = dataset.borderColor;
        context.lineWidth = 3;
        dataset.limits.forEach(value => {
          const at = x.getPixelForValue(value.y), middle = y.getPixelForValue(value.x);
          context.beginPath();
          context.moveTo(at, middle - half); context.lineTo(at, middle + half);
          context.stroke();
        });
        context.restore();
      });
    }
  };

  const lineStyle = {
    measured: (hue) => ({borderColor: color(hue), backgroundColor: color(hue), showLine: true, pointRadius: 4, errorBars: true}),
    others: () => ({borderColor: color('others'), backgroundColor: faded(color('others'), 0.6), showLine: false, pointRadius: 3}),
    dots: () => ({borderColor: color('good'), backgroundColor: faded(color('good'), 0.7), showLine: false, pointRadius: 4}),
    ideal: () => ({borderColor: color('ideal'), backgroundColor: color('ideal'), showLine: true, borderDash: [3, 4], borderWidth: 1.5, pointStyle: 'line', pointRadius: 0, pointHitRadius: 0}),
    limit: () => ({borderColor: color('limit'), backgroundColor: color('limit'), showLine: true, borderDash: [6, 4], borderWidth: 1.5, pointStyle: 'line', pointRadius: 0, pointHitRadius: 0}),
    simulated: () => ({borderColor: color('simulated'), backgroundColor: color('simulated'), showLine: true, borderDash: [8, 5], pointRadius: 3, pointStyle: 'rectRot'})
  };

  // Of several measured lines each has a colour of its own.
  function lineSets(series, index, all) {
    const measured = all.filter(one => one.look === 'measured');
    const hue = measured.length > 1 ? 'c' + measured.indexOf(series) % 8 : 'good';
    const style = (lineStyle[series.look] || lineStyle.dots)(hue);
    if (series.look === 'simulated' && index > 1) style.pointStyle = ['rectRot', 'triangle', 'rect', 'star'][(index - 1) % 4];
    const sets = [{type: 'scatter', label: series.name, data: series.values, borderWidth: 2, ...style}];
    if (series.look === 'simulated' && series.values.some(value => value.low !== undefined)) {
      const banded = series.values.filter(value => value.low !== undefined);
      const edge = {type: 'scatter', showLine: true, pointRadius: 0, pointHitRadius: 0, borderWidth: 0, borderColor: 'transparent', isBand: true};
      sets.push({...edge, label: 'band', data: banded.map(value => ({x: value.x, y: value.high}))});
      sets.push({...edge, label: 'band', data: banded.map(value => ({x: value.x, y: value.low})), fill: '-1', backgroundColor: faded(color('simulated'), 0.18)});
    }
    return sets;
  }

  function barSets(chart, series, index) {
    if (series.look === 'limit') {
      return [{type: 'bar', label: series.name, data: [], limits: series.values, borderColor: color('limit'), backgroundColor: color('limit')}];
    }
    const data = chart.categories.map(() => 0);
    series.values.forEach(value => { data[value.x] = value.y; });
    return [{type: 'bar', label: series.name, data, backgroundColor: color('c' + index % 8), borderWidth: 0,
             categoryPercentage: 0.84, barPercentage: chart.stacked ? 1 : 0.95}];
  }

  function scale(axis, values) {
    const made = {
      type: axis.logarithmic ? 'logarithmic' : 'linear',
      title: {display: axis.title !== '', text: axis.title, color: color('soft')},
      grid: {color: color('line')}, border: {color: color('line')},
      ticks: {color: color('soft'), maxRotation: 0, autoSkip: true, callback: value => number(value)}
    };
    const distinct = [...new Set(values)].sort((a, b) => a - b);
    if (axis.logarithmic && distinct.length > 0) {
      // Room beside the outermost values; where there are few, they are the ticks.
      const least = distinct[0], most = distinct[distinct.length - 1];
      const margin = Math.max(1.08, Math.pow(most / least, 0.05));
      made.min = least / margin, made.max = most * margin;
      if (axis.isSize && distinct.length <= 12) {
        made.afterBuildTicks = built => { built.ticks = distinct.map(value => ({value})); };
      } else {
        made.afterBuildTicks = built => { built.ticks = logTicks(made.min, made.max).map(value => ({value})); };
      }
    }
    return made;
  }

  // 1, 2 and 5 of every power of ten; in a range too short for three of those, four equal steps.
  function logTicks(least, most) {
    const found = [];
    for (let power = Math.floor(Math.log10(least)); power <= Math.ceil(Math.log10(most)); ++power) {
      for (const digit of [1, 2, 5]) {
        const value = digit * Math.pow(10, power);
        if (value >= least && value <= most) found.push(value);
      }
    }
    if (found.length >= 3) return found.length <= 8 ? found : found.filter(value => /^1/.test(value.toExponential()));
    return [0, 1, 2, 3, 4].map(n => Number((least + (most - least) * n / 4).toPrecision(3)));
  }

  function configuration(chart) {
    const bars = chart.categories.length > 0;
    const datasets = chart.series.filter(series => series.values.length > 0)
        .flatMap((series, index, all) => bars ? barSets(chart, series, index) : lineSets(series, index, all));
    const all = chart.series.flatMap(series => series.values);
    const isSize = title => title === 'ranks' || title === 'GPUs';
    const ys = all.flatMap(value => value.low === undefined ? [value.y] : [value.y, value.low, value.high]).filter(value => value > 0);
    // What a bar is called: one line, or where there is little room up to three, broken at blanks.
    const wrapped = text => {
      if (!narrow.matches) return shorten(text, 72);
      const lines = [];
      for (let rest = text; rest !== '' && lines.length < 3;) {
        const blank = rest.length > 26 ? rest.lastIndexOf(' ', 26) : rest.length;
        const end = lines.length === 2 ? rest.length : blank > 0 ? blank : rest.length;
        lines.push(shorten(rest.slice(0, end), 26));
        rest = rest.slice(end + 1);
      }
      return lines;
    };
    const scales = bars ? {
      x: {...scale(chart.x, []), stacked: chart.stacked, beginAtZero: true,
          suggestedMax: Math.max(0, ...chart.series.filter(s => s.look === 'limit').flatMap(s => s.values.map(v => v.y)))},
      y: {stacked: chart.stacked, grid: {display: false}, border: {color: color('line')},
          ticks: {color: color('ink'), autoSkip: false, callback(value) { return wrapped(this.getLabelForValue(value)); }}}
    } : {
      x: scale({...chart.x, isSize: isSize(chart.x.title)}, all.map(value => value.x)),
      y: scale(chart.y, ys)
    };
    return {
      type: bars ? 'bar' : 'scatter',
      data: {labels: bars ? chart.categories : undefined, datasets},
      options: {
        indexAxis: bars ? 'y' : 'x', responsive: true, maintainAspectRatio: false, animation: false,
        interaction: {mode: 'nearest', intersect: false, axis: bars ? 'y' : 'xy'},
        plugins: {
          legend: {position: 'bottom', labels: {color: color('ink'), boxWidth: 14, usePointStyle: !bars, filter: item => !datasets[item.datasetIndex].isBand}},
          tooltip: {
            filter: item => !item.dataset.isBand,
            callbacks: {
              title: items => items.length === 0 ? '' : bars ? items[0].label : '',
              label: item => {
                if (bars) return `${item.dataset.label}: ${number(item.parsed.x)} ${chart.x.title}`;
                const value = item.raw;
                const range = value.low === undefined ? '' : ` (${number(value.low)} to ${number(value.high)})`;
                return [value.label, `${chart.x.title}: ${number(value.x)}`, `${chart.y.title}: ${number(value.y)}${range}`];
              }
            }
          }
        },
        scales
      },
      plugins: [errorBars, limits]
    };
  }

  let drawn = [];
  function draw() {
    drawn.forEach(chart => chart.destroy());
    drawn = Object.entries(charts).map(([id, chart]) => new Chart(document.getElementById('chart-' + id), configuration(chart)));
    document.documentElement.dataset.charts = String(drawn.length);
  }
  draw();

  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  narrow.addEventListener('change', draw);
  // On paper: light, with every table.
  let opened = [];
  window.addEventListener('beforeprint', () => {
    opened = [...document.querySelectorAll('main details:not([open])')];
    opened.forEach(element => { element.open = true; });
    draw();
    drawn.forEach(chart => chart.resize());
  });
  window.addEventListener('afterprint', () => {
    opened.forEach(element => { element.open = false; });
    draw();
  });
})();

package report

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// SVG by hand rather than by a library: gonum.org/v1/plot, the best kept one, names one font, without another to fall back
// on, lays text out by that font's widths, and brings nine modules.

// A chart is one panel of lines. Both axes take positions, not values: x as given, y by its scale.
type chart struct {
	title, x, y string // labels; y with its unit
	ticks       []tick // of the x axis, from left to right
	linear      bool   // y from zero; else logarithmic
	series      []series
}

type tick struct {
	at    float64
	label string
}

// A series is a line through medians, in a band from the lowest to the highest round.
type series struct {
	name   string
	color  string
	dashed bool
	points []point
}

type point struct {
	x float64
	y Stat
}

const (
	panelWidth, panelHeight    = 460, 300
	left, right, top, bottom   = 62, 16, 54, 46
	plotWidth, plotHeight      = panelWidth - left - right, panelHeight - top - bottom
	apacheColor, ottlaColor    = "#c2571a", "#1b6ca8"
	clientColor, machineColor  = "#7a7a7a", "#3f8f4f"
	figureStyle                = `text{font-family:system-ui,"Segoe UI",Helvetica,Arial,sans-serif;font-size:11px;fill:#333}.t{font-size:13px;font-weight:600}.g{stroke:#e3e3e3}.f{stroke:#f1f1f1}.a{stroke:#888}`
	legendSample, legendSpacer = 22, 14
	letterWidth                = 5.9 // of the legend's font, roughly
)

// svg draws charts in two columns as one SVG document; without anything to draw it is nil.
func svg(charts ...chart) []byte {
	charts = slices.DeleteFunc(charts, func(c chart) bool { return len(c.drawn()) == 0 })
	if len(charts) == 0 {
		return nil
	}
	columns := min(len(charts), 2)
	rows := (len(charts) + columns - 1) / columns
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d">`+"\n", columns*panelWidth, rows*panelHeight)
	fmt.Fprintf(&b, "<style>%s</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", figureStyle)
	for i, c := range charts {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", i%columns*panelWidth, i/columns*panelHeight)
		c.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// drawn returns the series that have points, with those points alone.
func (c chart) drawn() (all []series) {
	for _, s := range c.series {
		s.points = slices.DeleteFunc(slices.Clone(s.points), func(p point) bool { return p.y.N == 0 || !c.linear && p.y.Min <= 0 })
		if len(s.points) > 0 {
			all = append(all, s)
		}
	}
	return all
}

func (c chart) draw(b *bytes.Buffer) {
	drawn := c.drawn()
	low, high := math.Inf(1), math.Inf(-1)
	for _, s := range drawn {
		for _, p := range s.points {
			low, high = min(low, p.y.Min), max(high, p.y.Max)
		}
	}
	marks := logMarks(low, high)
	if c.linear {
		marks = linearMarks(high)
	}
	first, last := marks[0].at, marks[len(marks)-1].at
	y := func(v float64) float64 {
		if c.linear {
			return top + plotHeight*(1-v/last)
		}
		return top + plotHeight*(1-math.Log(v/first)/math.Log(last/first))
	}
	from, to := c.ticks[0].at, c.ticks[len(c.ticks)-1].at
	margin := 0.06 * (to - from)
	if margin == 0 {
		margin = 1
	}
	x := func(v float64) float64 { return left + plotWidth*(v-from+margin)/(to-from+2*margin) }

	text := func(x, y float64, attributes, s string) {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f"%s>%s</text>`+"\n", x, y, attributes, html.EscapeString(s))
	}
	line := func(class string, x1, y1, x2, y2 float64) {
		fmt.Fprintf(b, `<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", class, x1, y1, x2, y2)
	}
	text(left, 20, ` class="t"`, c.title)
	for _, m := range marks {
		class := "g"
		if m.label == "" {
			class = "f"
		}
		line(class, left, y(m.at), panelWidth-right, y(m.at))
		if m.label != "" {
			text(left-6, y(m.at)+4, ` text-anchor="end"`, m.label)
		}
	}
	for _, t := range c.ticks {
		line("a", x(t.at), top+plotHeight, x(t.at), top+plotHeight+4)
		text(x(t.at), top+plotHeight+17, ` text-anchor="middle"`, t.label)
	}
	line("a", left, top+plotHeight, panelWidth-right, top+plotHeight)
	line("a", left, top, left, top+plotHeight)
	text(left+plotWidth/2, panelHeight-8, ` text-anchor="middle"`, c.x)
	fmt.Fprintf(b, `<text transform="translate(14 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", top+plotHeight/2, html.EscapeString(c.y))

	at := float64(left)
	for _, s := range drawn {
		fmt.Fprintf(b, `<line x1="%.1f" y1="38" x2="%.1f" y2="38" stroke="%s" stroke-width="2"%s/>`+"\n", at, at+legendSample-4, s.color, s.dash())
		text(at+legendSample, 42, "", s.name)
		at += legendSample + legendSpacer + letterWidth*float64(len([]rune(s.name)))
		var path, highs, lows []string
		for _, p := range s.points {
			path = append(path, fmt.Sprintf("%.1f,%.1f", x(p.x), y(p.y.Median)))
			highs = append(highs, fmt.Sprintf("%.1f,%.1f", x(p.x), y(p.y.Max)))
			lows = append(lows, fmt.Sprintf("%.1f,%.1f", x(p.x), y(p.y.Min)))
		}
		slices.Reverse(lows)
		fmt.Fprintf(b, `<polygon fill="%s" fill-opacity="0.13" points="%s"/>`+"\n", s.color, strings.Join(append(highs, lows...), " "))
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="2"%s points="%s"/>`+"\n", s.color, s.dash(), strings.Join(path, " "))
		for _, p := range s.points {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s</title></circle>`+"\n", x(p.x), y(p.y.Median), s.color,
				html.EscapeString(s.name+": "+p.y.String()))
		}
	}
}

func (s series) dash() string {
	if s.dashed {
		return ` stroke-dasharray="6 4"`
	}
	return ""
}

// logMarks covers low to high with 1, 2 and 5 of each power of ten. Where that makes more than eight, only the
// powers are labelled.
func logMarks(low, high float64) []tick {
	var all []tick
	for e := int(math.Floor(math.Log10(low))); ; e++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow10(e)
			all = append(all, tick{at: v, label: short(v)})
			if v < high {
				continue
			}
			start, found := slices.BinarySearchFunc(all, low, func(t tick, v float64) int { return cmp.Compare(t.at, v) })
			if !found {
				start--
			}
			all = all[max(start, 0):]
			if len(all) == 1 { // all is one round value: give it room below
				all = slices.Insert(all, 0, tick{at: v / 2, label: short(v / 2)})
			}
			if len(all) > 8 {
				for i := range all {
					if exp := math.Log10(all[i].at); math.Abs(exp-math.Round(exp)) > 1e-9 {
						all[i].label = ""
					}
				}
			}
			return all
		}
	}
}

// linearMarks covers zero to high in four to eight round steps.
func linearMarks(high float64) []tick {
	if high <= 0 {
		high = 1
	}
	step := math.Pow10(int(math.Floor(math.Log10(high / 4))))
	for _, m := range []float64{1, 2, 5, 10} {
		if high/(step*m) <= 8 {
			step *= m
			break
		}
	}
	var all []tick
	for i := 0; ; i++ {
		v := float64(i) * step
		all = append(all, tick{at: v, label: short(v)})
		if v >= high {
			return all
		}
	}
}

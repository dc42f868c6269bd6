package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A column of a table. Wide ones appear with -o wide only.
type column[T any] struct {
	title string
	cell  func(T) string
	right bool // numbers
	wide  bool
}

// A listing says how a list of T is printed.
type listing[T any] struct {
	columns []column[T]
	name    func(T) string // for -o name
	empty   string         // told to people when there is nothing
}

// show prints rows in the form that -o asks for.
func (l listing[T]) show(a *app, rows []T) error {
	if rows == nil {
		rows = []T{}
	}
	switch a.format {
	case "json":
		return writeJSON(a.out, rows, true)
	case "jsonl":
		for _, row := range rows {
			if err := writeJSON(a.out, row, false); err != nil {
				return err
			}
		}
		return nil
	case "name":
		for _, row := range rows {
			fmt.Fprintln(a.out, l.name(row))
		}
		return nil
	}
	if len(rows) == 0 {
		if l.empty != "" {
			a.note("%s", l.empty)
		}
		return nil
	}
	l.table(a.out, rows, a.format == "wide")
	return nil
}

func (l listing[T]) table(w io.Writer, rows []T, wide bool) {
	var columns []column[T]
	for _, c := range l.columns {
		if wide || !c.wide {
			columns = append(columns, c)
		}
	}
	cells := make([][]string, len(rows)+1)
	for _, c := range columns {
		cells[0] = append(cells[0], c.title)
	}
	for i, row := range rows {
		for _, c := range columns {
			cells[i+1] = append(cells[i+1], c.cell(row))
		}
	}
	right := make([]bool, len(columns))
	for i, c := range columns {
		right[i] = c.right
	}
	writeTable(w, cells, right)
}

// writeTable prints cells in columns two blanks apart.
func writeTable(w io.Writer, cells [][]string, right []bool) {
	widths := make([]int, len(right))
	for _, row := range cells {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range cells {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if right[i] {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
			line.WriteString("  ")
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// showOne prints a single result: value as JSON, name for -o name, else what human writes.
func (a *app) showOne(value any, name string, human func(w io.Writer)) error {
	switch a.format {
	case "json":
		return writeJSON(a.out, value, true)
	case "jsonl":
		return writeJSON(a.out, value, false)
	case "name":
		fmt.Fprintln(a.out, name)
		return nil
	}
	human(a.out)
	return nil
}

// lines prints results each of which is a line, or a block, for people; text returns its name and that
// line.
func lines[T any](a *app, values []T, text func(T) (name, line string)) error {
	if values == nil {
		values = []T{}
	}
	switch a.format {
	case "json":
		return writeJSON(a.out, values, true)
	case "jsonl":
		for _, v := range values {
			if err := writeJSON(a.out, v, false); err != nil {
				return err
			}
		}
		return nil
	}
	for _, v := range values {
		name, line := text(v)
		if a.format == "name" {
			line = name
		}
		fmt.Fprintln(a.out, line)
	}
	return nil
}

func writeJSON(w io.Writer, value any, indented bool) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if indented {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(value)
}

const schemaAnnotation = "schema"

// schemaOf returns the JSON Schema of a result type, as text; "" for none.
func schemaOf(zero any) string {
	if zero == nil {
		return ""
	}
	s := schema(reflect.TypeOf(zero))
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("cli: schema of %T: %v", zero, err)) // made of maps and strings only
	}
	return string(b)
}

var timeType = reflect.TypeOf(time.Time{})

// schema covers the kinds that results are made of.
func schema(t reflect.Type) map[string]any {
	if t == timeType {
		return map[string]any{"type": "string", "format": "date-time"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		s := schema(t.Elem())
		s["type"] = []any{s["type"], "null"}
		return s
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schema(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schema(t.Elem())}
	case reflect.Struct:
		return structSchema(t)
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Interface:
		return map[string]any{}
	}
	return map[string]any{"type": "integer"}
}

func structSchema(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "-" || name == "" {
			continue
		}
		property := schema(t.Field(i).Type)
		if doc := t.Field(i).Tag.Get("doc"); doc != "" {
			property["description"] = doc
		}
		properties[name] = property
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
			required = append(required, name)
		}
	}
	slices.Sort(required)
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

// count prints 1204 as 1,204.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	digits := strings.TrimPrefix(s, "-")
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if n < 0 {
		return "-" + digits
	}
	return digits
}

// plenty prints a number with the word for what it counts: 1 partition, 3 partitions.
func plenty(n int64, word string) string {
	if n != 1 {
		word += "s"
	}
	return count(n) + " " + word
}

// size prints bytes with a binary unit and three digits.
func size(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	i := 0
	for ; n >= 1024 && i < len(units)-1; i++ {
		n /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%.0f %s", n, units[i])
	}
	return threeDigits(n) + " " + units[i]
}

func threeDigits(n float64) string {
	switch {
	case n < 10:
		return fmt.Sprintf("%.2f", n)
	case n < 100:
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.0f", n)
}

// span prints a time in the largest unit that is whole: 7d, 36h, 90s, 250ms.
func span(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if d >= u.unit && d%u.unit == 0 {
			return fmt.Sprintf("%d%s", d/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}

// ids prints node ids as 1,2,3, or - if there are none.
func ids(list []int32) string {
	if len(list) == 0 {
		return "-"
	}
	var b strings.Builder
	for i, id := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(id)))
	}
	return b.String()
}

func number[N int | int16 | int32 | int64](n N) string { return strconv.FormatInt(int64(n), 10) }

package report

import (
	"fmt"
	"image/color"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Colours that stand for a CSS variable in the page: a chart is drawn once and
// follows the reader's light or dark theme. They differ from every data colour.
var (
	inkColor  = color.RGBA{R: 1, G: 2, B: 3, A: 255} // text
	softColor = color.RGBA{R: 4, G: 5, B: 6, A: 255} // axes, ticks, notes
	gridColor = color.RGBA{R: 7, G: 8, B: 9, A: 255} // grid lines
)

// themed rewrites the stand-in colours of an SVG into CSS variables.
var themed = strings.NewReplacer("#010203", "var(--fg)", "#040506", "var(--soft)", "#070809", "var(--line)", "#0072B2", "var(--blue)")

// fixedColors are what stands for them in files outside the page.
var fixedColors = map[color.RGBA]color.RGBA{
	inkColor:  {R: 0x1b, G: 0x1f, B: 0x24, A: 255},
	softColor: {R: 0x5b, G: 0x64, B: 0x70, A: 255},
	gridColor: {R: 0xe3, G: 0xe6, B: 0xea, A: 255},
}

// plain rewrites the stand-in colours of an SVG into the fixed ones.
var plain = func() *strings.Replacer {
	var pairs []string
	for own, fixed := range fixedColors {
		pairs = append(pairs, hex(own), strings.ToLower(hex(fixed)))
	}
	return strings.NewReplacer(pairs...)
}()

func hex(c color.RGBA) string { return fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B) }

// series is how one guarantee looks in every chart: colour, dash and marker
// together, so that no reader depends on colour alone. Colours: Okabe and Ito.
type series struct {
	Label  string
	Color  color.RGBA
	Dashes []vg.Length
	Shape  draw.GlyphDrawer
}

var looks = map[string]series{
	"at_most_once":     {"at most once", color.RGBA{R: 0x8a, G: 0x8f, B: 0x98, A: 255}, []vg.Length{1.5, 2.5}, draw.CrossGlyph{}},
	"at_least_once":    {"at least once", color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 255}, nil, draw.CircleGlyph{}},
	"idempotent":       {"idempotent", color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 255}, []vg.Length{5, 2.5}, draw.BoxGlyph{}},
	"transactional":    {"transactional", color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 255}, nil, draw.TriangleGlyph{}},
	"two_phase_commit": {"two-phase commit", color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 255}, []vg.Length{6, 2, 1.5, 2}, draw.PyramidGlyph{}},
}

// guaranteeOrder is the order of rows and legends: from weak to strong.
var guaranteeOrder = []string{"at_most_once", "at_least_once", "idempotent", "transactional", "two_phase_commit"}

// systemLooks are the colours and markers of systems, where they are compared.
// Dash and marker then stand for the guarantee, where that differs too.
var systemLooks = map[string]series{
	"gopherlog": {"GopherLog", color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 255}, nil, draw.CircleGlyph{}},
	"kafka":     {"Apache Kafka", color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 255}, []vg.Length{5, 2.5}, draw.TriangleGlyph{}},
	"nats":      {"NATS JetStream", color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 255}, []vg.Length{6, 2, 1.5, 2}, draw.BoxGlyph{}},
	"external":  {"external", color.RGBA{R: 0x8a, G: 0x8f, B: 0x98, A: 255}, []vg.Length{1.5, 2.5}, draw.CrossGlyph{}},
}

func look(guarantee string) series {
	if s, ok := looks[guarantee]; ok {
		return s
	}
	system, guarantee, both := strings.Cut(guarantee, "/")
	if s, ok := systemLooks[system]; ok {
		if both {
			g := looks[guarantee]
			s.Label, s.Dashes, s.Shape = s.Label+", "+g.Label, g.Dashes, g.Shape
		}
		return s
	}
	return series{Label: system, Color: softColor, Shape: draw.CircleGlyph{}}
}

func fade(c color.RGBA, alpha float64) color.NRGBA {
	return color.NRGBA{R: c.R, G: c.G, B: c.B, A: uint8(alpha * 255)}
}

var faultColor = color.RGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 255}

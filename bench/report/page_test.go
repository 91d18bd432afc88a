package report

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"image"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func wholePage(t *testing.T) string {
	t.Helper()
	files := hostile()
	all, err := Compare(files)
	if err != nil {
		t.Fatal(err)
	}
	text, err := HTML("A <title>", files, all)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestPageNeedsNothingElse: no script, no address, and no name that becomes markup.
func TestPageNeedsNothingElse(t *testing.T) {
	text := wholePage(t)
	for _, never := range []string{"<script", "https:", "src=", "href=", "@import", "url(", "A <title>"} {
		if strings.Contains(text, never) {
			t.Errorf("the page has %q in it", never)
		}
	}
	if rest := strings.ReplaceAll(text, `xmlns="http://www.w3.org/2000/svg"`, ""); strings.Contains(rest, "http:") {
		t.Error("the page has an address in it")
	}
	for _, want := range []string{"optimal wins", "differences-0", "heatmap-0", "e2e-0", "ttft-0", "tbot-0", "series-e2e-0", "flows-0", "abc, 2026-11-30, linux/amd64"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q", want)
		}
	}
}

// TestChartsAreImages: every chart is well-formed SVG, and a PNG with something on it.
func TestChartsAreImages(t *testing.T) {
	all, err := Compare(hostile())
	if err != nil {
		t.Fatal(err)
	}
	charts := all[0].Charts()
	if len(charts) != 7 {
		t.Errorf("%d charts, want 7", len(charts))
	}
	for _, c := range charts {
		for dec := xml.NewDecoder(strings.NewReader(c.Canvas.SVG())); ; {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
		}
		if strings.Contains(c.Canvas.SVG(), "NaN") || strings.Contains(c.Canvas.SVG(), "Inf") {
			t.Errorf("%s: a coordinate that is no number", c.Name)
		}
		text, err := c.Canvas.PNG(1)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		img, err := png.Decode(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		if share := inked(img); share < 0.005 || share > 0.8 {
			t.Errorf("%s: %.1f %% of the image is not white", c.Name, 100*share)
		}
	}
}

func inked(img image.Image) float64 {
	n, b := 0, img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			if r, g, b, _ := img.At(x, y).RGBA(); r+g+b < 3*0xf000 {
				n++
			}
		}
	}
	return float64(n) / float64(b.Dx()*b.Dy())
}

// TestPageInABrowser lets Chromium draw the page and looks at the picture: the
// colours of all three names are on it. PENSTOCK_SCREENSHOT keeps it.
func TestPageInABrowser(t *testing.T) {
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			break
		}
	}
	if browser == "" {
		t.Skip("no browser to look at the page with: install chromium (Debian package chromium)")
	}
	dir := t.TempDir()
	page, shot := filepath.Join(dir, "report.html"), filepath.Join(dir, "report.png")
	if keep := os.Getenv("PENSTOCK_SCREENSHOT"); keep != "" {
		shot = keep
	}
	if err := os.WriteFile(page, []byte(wholePage(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--user-data-dir="+filepath.Join(dir, "profile"),
		"--screenshot="+shot, "--window-size=1400,2200", "file://"+page).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", browser, err, out)
	}
	text, err := os.ReadFile(shot)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if img.Bounds().Dx() != 1400 || img.Bounds().Dy() != 2200 {
		t.Errorf("a picture of %v", img.Bounds())
	}
	for _, hue := range []image.Point{{0x0072, 0xb2}, {0xd55e, 0x00}, {0x009e, 0x73}} {
		if n := pixels(img, uint8(hue.X>>8), uint8(hue.X), uint8(hue.Y)); n < 300 {
			t.Errorf("%d pixels of the colour #%04x%02x: want lines and bars of every name", n, hue.X, hue.Y)
		}
	}
}

func pixels(img image.Image, r, g, b uint8) (n int) {
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			if pr, pg, pb, _ := img.At(x, y).RGBA(); uint8(pr>>8) == r && uint8(pg>>8) == g && uint8(pb>>8) == b {
				n++
			}
		}
	}
	return n
}

// TestAWindowAloneIsSeen: a value over time whose neighbours are missing is a dot, since no line goes there.
func TestAWindowAloneIsSeen(t *testing.T) {
	all, err := Compare(hostile())
	if err != nil {
		t.Fatal(err)
	}
	names, windows := len(all[0].Names), 2 // the middle one of three has no value
	if n := strings.Count(all[0].series("E2E").SVG(), "<circle"); n != names*windows {
		t.Errorf("%d dots, want %d: one for each name and window", n, names*windows)
	}
}

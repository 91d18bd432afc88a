package proxy

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// chatBody is a conversation of about size bytes: prose with the escapes that
// prose has, in turns of at most 16 KiB; or one system prompt and one question.
func chatBody(size int, turns bool) []byte {
	const line = `The committee reviewed the \"maintenance\" plan and agreed on the next inspection window.\n`
	var b strings.Builder
	b.WriteString(`{"model":"llama-3.1-8b-instruct","stream":true,"temperature":0.7,"max_tokens":256,"messages":[{"role":"system","content":"`)
	if !turns {
		b.WriteString(strings.Repeat(line, max(0, size-300)/len(line)))
		b.WriteString(`"},{"role":"user","content":"What is agreed?"}]}`)
		return []byte(b.String())
	}
	b.WriteString(`Answer in one short paragraph."}`)
	for i := 0; b.Len() < size-100; i++ {
		left := min(size-100-b.Len(), 16<<10)
		fmt.Fprintf(&b, `,{"role":"%s","content":"%d: `, []string{"user", "assistant"}[i%2], i)
		b.WriteString(strings.Repeat(line, 1+left/len(line)))
		b.WriteString(`"}`)
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

func BenchmarkEnvelope(b *testing.B) {
	for _, shape := range []string{"turns", "system"} {
		for _, size := range []int{1 << 10, 32 << 10, 220 << 10, 411 << 10, 1 << 20} {
			body := chatBody(size, shape == "turns")
			if shape == "turns" {
				b.Run(fmt.Sprintf("jsontext alone/%dKB", size>>10), func(b *testing.B) { skipWhole(b, body) })
			}
			b.Run(fmt.Sprintf("%s/%dKB", shape, size>>10), func(b *testing.B) {
				var s Scanner
				var env Envelope
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					if err := s.Scan(APIChat, body, &env); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
	tokens := []byte(`{"model":"m","prompt":[` + strings.TrimSuffix(strings.Repeat("12345,", 32<<10), ",") + `]}`)
	b.Run("tokens/32K", func(b *testing.B) {
		var s Scanner
		var env Envelope
		b.SetBytes(int64(len(tokens)))
		b.ReportAllocs()
		for b.Loop() {
			if err := s.Scan(APICompletions, tokens, &env); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// skipWhole is the floor: the decoder passing over the same body.
func skipWhole(b *testing.B, body []byte) {
	var d jsontext.Decoder
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		d.Reset(bytes.NewBuffer(body), scanOptions...)
		if err := d.SkipValue(); err != nil {
			b.Fatal(err)
		}
	}
}

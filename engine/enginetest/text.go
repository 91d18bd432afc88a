package enginetest

import (
	"encoding/binary"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// tokenBytes is the text of one token. Every message and every answer is
// filled up to a whole number of tokens.
const tokenBytes = 4

const blockBytes = BlockTokens * tokenBytes

// pad fills a rendered prompt up to a whole token.
func pad(text []byte) []byte {
	for len(text)%tokenBytes != 0 {
		text = append(text, 0)
	}
	return text
}

// Chain hashes each full block of a text together with all before it; equal
// links mean equal beginnings. Start keeps apart what engines keep apart:
// models, adapters, cache salts.
func Chain(start uint64, text []byte) []uint64 {
	chain := make([]uint64, 0, len(text)/blockBytes)
	h := start
	for len(text) >= blockBytes {
		h = mix(h + xxhash.Sum64(text[:blockBytes]))
		chain = append(chain, h)
		text = text[blockBytes:]
	}
	return chain
}

// mix is the finaliser of splitmix64: every bit of x reaches every bit of the result.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// The three kinds of words differ in their first character, so that a piece
// of an answer can never end in what looks like its checksum.
const (
	consonants = "bdfgklmnprstvz"
	vowels     = "aeiou"
	upper      = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits     = "0123456789"
	alphabet   = digits + upper + "abcdefghijklmnopqrstuvwxyz"
)

// minNonceTokens is the shortest answer with room for its nonce.
const minNonceTokens = 4

// Answer is the text of an answer of that many tokens: three-letter words
// drawn from the seed, the first two of them (of four or more) made of the
// nonce, the last one a checksum of all before it.
func Answer(seed uint64, nonce string, tokens int) string {
	if tokens <= 0 {
		return ""
	}
	text := make([]byte, 0, tokens*tokenBytes)
	for i := range tokens - 1 {
		switch {
		case tokens >= minNonceTokens && i < 2:
			text = append(text, nonceWord(nonce, i)...)
		default:
			r := mix(seed + uint64(i)*0x9e3779b97f4a7c15)
			text = append(text, pick(consonants, r), pick(vowels, r>>16), pick(consonants, r>>32))
		}
		text = append(text, ' ')
	}
	return string(append(text, checksum(text)...))
}

func pick(set string, r uint64) byte { return set[r&0xffff%uint64(len(set))] }

func nonceWord(nonce string, i int) []byte {
	r := xxhash.Sum64String(nonce) >> (i * 20)
	r = mix(r & 0xfffff)
	return []byte{pick(digits, r), pick(alphabet, r>>16), pick(alphabet, r>>32)}
}

func checksum(before []byte) []byte {
	r := mix(xxhash.Sum64(before))
	return []byte{pick(upper, r), pick(alphabet, r>>16), pick(alphabet, r>>32)}
}

// Complete reports whether text is the whole of one answer: nothing missing
// at its end or within, nothing of another answer, nothing twice.
func Complete(text string) bool {
	cut := len(text) - (tokenBytes - 1)
	return cut >= 0 && cut%tokenBytes == 0 && text[cut:] == string(checksum([]byte(text[:cut])))
}

// Carries reports whether text begins as the answer to the request with that
// nonce does. Answers of fewer than four tokens carry none.
func Carries(text, nonce string) bool {
	w0, w1 := string(nonceWord(nonce, 0)), string(nonceWord(nonce, 1))
	return len(text) >= minNonceTokens*tokenBytes-1 && strings.HasPrefix(text, w0+" "+w1+" ")
}

// token is the piece of an answer that its i-th token stands for.
func token(answer string, i int) string {
	return answer[i*tokenBytes : min((i+1)*tokenBytes, len(answer))]
}

// appendTokenIDs renders a prompt that was sent as token ids.
func appendTokenIDs(text []byte, ids []uint32) []byte {
	for _, id := range ids {
		text = binary.LittleEndian.AppendUint32(text, id)
	}
	return text
}

// Package enginetest is an inference engine without a model: what `penstock
// sim`, `penstock demo`, tests and benchmarks put behind a gateway.
//
// There are two of them, and a way to them:
//
//   - Sim speaks vLLM's HTTP API and metrics and behaves like a batching
//     engine under load. Its decisions are made by Batch, which has no clock
//     and starts nothing, so that the same model also runs on virtual time.
//     Faults can be set and cleared while it runs.
//   - Script is a listener on which a test writes the bytes itself, for
//     faults that only an exact sequence of bytes, pauses and resets shows.
//   - Distance is a relay in front of either, through which bytes take time.
//
// # The model
//
// An engine works in steps. Each step computes at most ChunkTokens prompt
// tokens of the sequences that are not through their prompt yet, and one
// token of every other sequence, and takes
//
//	Base + PerSeq x decoding sequences + PerPrefill x prompt tokens
//
// A sequence needs a slot and one KV block for every BlockTokens tokens.
// Blocks with equal text before and in them are shared (prefix cache); those
// that nobody uses are kept until their space is needed, the least recently
// used first. Sequences wait in order of arrival for a slot and for the
// blocks of their prompt; when a growing answer finds no block, the sequence
// admitted last gives up its own and starts again later.
//
// # Answers
//
// A token is four bytes of text, so that what an engine answered is found in
// its prefix cache when the next turn of the conversation brings it back.
// The text is made of the seed and the prompt. It carries the nonce of its
// request and ends in a checksum word (Complete, Carries), so that a client
// can tell an answer that was cut, mixed up or repeated.
package enginetest

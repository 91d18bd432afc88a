package engine

import "time"

// Model is one name that an engine serves.
type Model struct {
	ID     string
	Parent string // of an adapter: the model that it adapts
	// Raw is the engine's own JSON object for the model, fields kept; nil for
	// a model that is only configured.
	Raw []byte
	// ContextTokens is the longest prompt + answer it takes; 0 = not told.
	ContextTokens int
}

// ModelList is what an engine said it serves, and when.
type ModelList struct {
	Models []Model
	At     time.Time
	Native bool // served by a protocol of the engine's own: requests cannot ask for them
}

// Serves is what the engine can be asked for: the configured models, with the
// fields the engine gave them, else all that it listed. Known is false while
// neither is there.
func (e *Engine) Serves() (models []Model, known bool) {
	told := e.Live.Models()
	if len(e.Config.Models) == 0 {
		if told == nil {
			return nil, false
		}
		if told.Native {
			return nil, true
		}
		return told.Models, true
	}
	models = make([]Model, len(e.Config.Models))
	for i, id := range e.Config.Models {
		models[i].ID = id
		if told == nil {
			continue
		}
		for _, m := range told.Models {
			if m.ID == id {
				models[i] = m
			}
		}
	}
	return models, true
}

// ContextTokens is the context length of the engine's model, 0 if not told.
func (e *Engine) ContextTokens(model string) int {
	told := e.Live.Models()
	if told == nil {
		return 0
	}
	for i := range told.Models {
		if told.Models[i].ID == model {
			return told.Models[i].ContextTokens
		}
	}
	return 0
}

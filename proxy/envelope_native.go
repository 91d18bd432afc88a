package proxy

import "penstock/engine"

// The bodies of one path that different engines take.
var (
	generateText   = engine.PathNeeds(engine.PathGenerateText)
	generateInputs = engine.PathNeeds(engine.PathGenerateInputs)
)

// generateMember reads SGLang's /generate, TGI's and LMDeploy's, which share a
// path and differ in their members.
func (s *Scanner) generateMember(name []byte) (read bool, err error) {
	switch string(name) {
	case "text":
		s.env.Needs |= generateText
		return true, s.promptValue(openingPrompt)
	case "inputs":
		s.env.Needs |= generateInputs
		return true, s.promptValue(openingPrompt)
	case "input_ids", "prompt":
		return true, s.promptValue(openingPrompt)
	case "image_data", "video_data":
		return true, s.media(engine.Vision)
	case "audio_data":
		return true, s.media(engine.Audio)
	case "sampling_params":
		return true, s.samplingParams()
	case "parameters":
		return true, s.tgiParameters()
	case "session_params":
		return true, s.object(func(name []byte) error {
			if string(name) != "id" {
				return s.skip()
			}
			s.env.BoundKind = idSession
			return s.str(&s.held)
		})
	}
	return false, nil
}

// samplingParams reads the parameters of one prompt, or of each of several.
func (s *Scanner) samplingParams() error {
	if s.dec.PeekKind() == '[' {
		if err := s.step(); err != nil {
			return err
		}
		for s.more(']') {
			if err := s.samplingParams(); err != nil {
				return err
			}
		}
		return s.step()
	}
	return s.object(func(name []byte) error {
		switch string(name) {
		case "max_new_tokens", "max_tokens":
			return s.largest(&s.maxNew)
		case "n":
			return s.largest(&s.several)
		case "json_schema":
			return s.media(engine.StructuredOutput)
		}
		return s.skip()
	})
}

func (s *Scanner) tgiParameters() error {
	return s.object(func(name []byte) error {
		switch string(name) {
		case "max_new_tokens":
			return s.largest(&s.maxNew)
		case "grammar":
			return s.media(engine.StructuredOutput)
		}
		return s.skip()
	})
}

// completionMember reads llama.cpp's /completion and /infill.
func (s *Scanner) completionMember(name []byte) (read bool, err error) {
	switch string(name) {
	case "prompt", "input_prefix":
		return true, s.promptValue(openingPrompt)
	case "n_predict":
		return true, s.largest(&s.maxNew)
	case "n_cmpl": // n by another name
		return true, s.largest(&s.several)
	case "json_schema":
		return true, s.media(engine.StructuredOutput)
	}
	return false, nil
}

// tokensMember reads vLLM's /inference/v1/generate.
func (s *Scanner) tokensMember(name []byte) (read bool, err error) {
	switch string(name) {
	case "token_ids":
		return true, s.promptValue(openingPrompt)
	case "sampling_params":
		return true, s.samplingParams()
	}
	return false, nil
}

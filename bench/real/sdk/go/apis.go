package main

import (
	"context"
	"encoding/json"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

var apis = map[string]func(context.Context, *openai.Client, job, *seen) error{
	"chat": chat, "completions": completions, "embeddings": embeddings, "models": models, "responses": respond, "retrieve": retrieve,
}

func chat(ctx context.Context, client *openai.Client, j job, s *seen) error {
	var params openai.ChatCompletionNewParams
	if err := json.Unmarshal(j.Body, &params); err != nil {
		return err
	}
	if !j.Stream {
		c, err := client.Chat.Completions.New(ctx, params)
		if err != nil {
			return err
		}
		choice := c.Choices[0]
		s.add(choice.Message.Content)
		s.finished(choice.FinishReason)
		s.Usage = &usage{c.Usage.PromptTokens, c.Usage.CompletionTokens, c.Usage.PromptTokensDetails.CachedTokens}
		for _, call := range choice.Message.ToolCalls {
			s.Calls = append(s.Calls, [2]string{call.Function.Name, call.Function.Arguments})
		}
		return nil
	}
	stream := client.Chat.Completions.NewStreaming(ctx, params)
	defer stream.Close()
	for stream.Next() {
		chunk := stream.Current()
		if u := chunk.Usage; chunk.JSON.Usage.Valid() && u.TotalTokens > 0 {
			s.Usage = &usage{u.PromptTokens, u.CompletionTokens, u.PromptTokensDetails.CachedTokens}
		}
		for _, choice := range chunk.Choices {
			s.finished(choice.FinishReason)
			s.add(choice.Delta.Content)
			for _, part := range choice.Delta.ToolCalls {
				for int(part.Index) >= len(s.Calls) {
					s.Calls = append(s.Calls, [2]string{})
				}
				s.Calls[part.Index][0] += part.Function.Name
				s.Calls[part.Index][1] += part.Function.Arguments
			}
		}
		if s.Chunks > 0 && s.Chunks == j.LeaveAfter {
			return nil
		}
	}
	return stream.Err()
}

func completions(ctx context.Context, client *openai.Client, j job, s *seen) error {
	var params openai.CompletionNewParams
	if err := json.Unmarshal(j.Body, &params); err != nil {
		return err
	}
	take := func(c openai.Completion) {
		for _, choice := range c.Choices {
			s.add(choice.Text)
			s.finished(string(choice.FinishReason))
		}
	}
	if !j.Stream {
		c, err := client.Completions.New(ctx, params)
		if err == nil {
			take(*c)
		}
		return err
	}
	stream := client.Completions.NewStreaming(ctx, params)
	defer stream.Close()
	for stream.Next() {
		take(stream.Current())
	}
	return stream.Err()
}

func embeddings(ctx context.Context, client *openai.Client, j job, s *seen) error {
	var params openai.EmbeddingNewParams
	if err := json.Unmarshal(j.Body, &params); err != nil {
		return err
	}
	answer, err := client.Embeddings.New(ctx, params)
	if err != nil {
		return err
	}
	vectors := [][]float64{}
	for _, d := range answer.Data {
		vectors = append(vectors, d.Embedding)
	}
	s.Value, s.Usage = vectors, &usage{Prompt: answer.Usage.PromptTokens}
	return nil
}

func models(ctx context.Context, client *openai.Client, _ job, s *seen) error {
	page, err := client.Models.List(ctx)
	if err != nil {
		return err
	}
	names := []string{}
	for _, m := range page.Data {
		names = append(names, m.ID)
	}
	s.Value = names
	return nil
}

func respond(ctx context.Context, client *openai.Client, j job, s *seen) error {
	var params responses.ResponseNewParams
	if err := json.Unmarshal(j.Body, &params); err != nil {
		return err
	}
	if !j.Stream {
		r, err := client.Responses.New(ctx, params)
		if err != nil {
			return err
		}
		s.answered(*r)
		s.add(r.OutputText())
		return nil
	}
	stream := client.Responses.NewStreaming(ctx, params)
	defer stream.Close()
	for stream.Next() {
		switch event := stream.Current(); event.Type {
		case "response.output_text.delta":
			s.add(event.Delta)
		case "response.completed", "response.incomplete", "response.failed":
			s.answered(event.Response)
		}
		if s.Chunks > 0 && s.Chunks == j.LeaveAfter {
			return nil
		}
	}
	return stream.Err()
}

func (s *seen) answered(r responses.Response) {
	s.finished(string(r.Status))
	s.Usage = &usage{r.Usage.InputTokens, r.Usage.OutputTokens, r.Usage.InputTokensDetails.CachedTokens}
	s.Value = map[string]string{"id": r.ID, "text": r.OutputText()}
	for _, item := range r.Output {
		if item.Type == "function_call" {
			s.Calls = append(s.Calls, [2]string{item.Name, item.Arguments.OfString})
		}
	}
}

func retrieve(ctx context.Context, client *openai.Client, j job, s *seen) error {
	r, err := client.Responses.Get(ctx, j.Response, responses.ResponseGetParams{})
	if err != nil {
		return err
	}
	s.answered(*r)
	s.add(r.OutputText())
	return nil
}

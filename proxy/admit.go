package proxy

import (
	"net/http"
	"strings"

	"penstock/selector"
)

// admit finds the tenant, reads the request, resolves its class and, where the
// request names what one engine holds, that engine, and takes it from the
// tenant's limits: steps 2 to 6 of DESIGN.md 4. A stranger's body is not read.
func (x *exchange) admit() *apiError {
	var fault *apiError
	x.ours() // some refusals are sent at once
	if x.tenant, fault = x.set.tenants.of(x.r.Header, &x.hasher); fault != nil {
		if n := x.r.ContentLength; n < 0 || n > unreadBytes {
			return fault.beforeBody(x.w, x.r, strangerBytes)
		}
		return fault
	}
	x.priority = x.tenant.unasked
	if fault = x.strained(); fault != nil {
		return fault
	}
	if fault = x.readBody(); fault != nil {
		return fault
	}
	var err error
	if x.query, err = handedOn(x.r.URL.RawQuery, x.ep.query); err != nil {
		return errBadRequest(err)
	}
	x.env.Stream = x.env.Stream || strings.Contains(x.query, "stream=true")
	require, err := x.tenant.demand(x.r.Header)
	if err == nil {
		x.priority, err = x.tenant.priority(x.r.Header)
	}
	if err != nil {
		return errBadRequest(err)
	}
	need := selector.Need{Caps: x.env.Needs | x.ep.needs, Context: x.env.MinTokens(), Require: require}
	if x.ep.api != APIBound {
		if fault := x.resolve(need); fault != nil {
			return fault
		}
	}
	if x.ep.binds != idNone {
		if fault := x.bind(need); fault != nil {
			return fault
		}
	}
	x.keyed()
	if fault := x.meterIn(); fault != nil {
		return fault
	}
	x.countOffered()
	return x.shedEarly()
}

// readBody reads the body whole and looks at it once.
func (x *exchange) readBody() *apiError {
	x.env = Envelope{API: x.ep.api}
	if x.ep.method != http.MethodPost {
		return nil
	}
	reader := bodyReader{limit: x.set.limits.Body, wait: x.set.limits.BodyRead, memory: x.h.memory, rc: x.rc, dog: &x.dog}
	var fault *apiError
	if x.body, fault = reader.read(x.w, x.r); fault != nil {
		return fault
	}
	x.in = int64(len(x.body.bytes))
	x.rc.EnableFullDuplex() // nothing is left that net/http would have to read before it answers
	var err error
	switch {
	case x.ep.api == APIForm:
		err = x.scanner.ScanForm(x.r.Header.Get("Content-Type"), x.body.bytes, &x.env)
	case x.named == "" || len(x.body.bytes) > 0: // with an id in the path there may be nothing more to say
		err = x.scanner.Scan(x.ep.api, x.body.bytes, &x.env)
	}
	if err != nil {
		return errBadRequest(err)
	}
	return nil
}

// resolve finds the class: by the model that the request names, which may be
// an alias, or by the only one there is.
func (x *exchange) resolve(need selector.Need) *apiError {
	target := x.set.aliases[x.env.Model]
	switch {
	case x.env.Model == "":
		model, count, told := x.h.selector.SoleModel(need, x.arrived)
		switch {
		case count > 1:
			return errBadRequest(badRequest("model", "model is missing, and several are served that could be meant"))
		case count == 0:
			return errNoModel(need, told)
		}
		x.env.Model = model
	case target != "":
		x.alias, x.env.Model = x.env.Model, target
	}
	class, refusal := x.h.selector.Resolve(x.env.Model, need, x.arrived)
	x.class = class
	if refusal != nil {
		return errRefused(x.asAsked(refusal))
	}
	if x.alias != "" {
		return x.spliceModel()
	}
	return nil
}

// asAsked lets a refusal name the model as the client does.
func (x *exchange) asAsked(r *selector.Refusal) *selector.Refusal {
	if x.alias != "" {
		r.Model = x.alias
	}
	return r
}

// keyed finds the affinity key.
func (x *exchange) keyed() {
	x.ask = selector.Ask{Now: x.arrived.Unix(), Prompt: x.guessedPrompt()}
	switch {
	case x.holder.Engine != nil:
		x.source = KeyHolder
		return
	case !x.ep.keyed:
		x.source = KeyNone
		return
	}
	id, source, unfit := affinityKey(x.r.Header, &x.env)
	if source != KeyNone && x.class.ByOpening() {
		source = x.env.openingKey()
	}
	x.source = source
	x.ask = selector.Ask{Now: x.arrived.Unix(), EarlierTurns: x.env.EarlierTurns, Prompt: x.guessedPrompt(), Keyed: source != KeyNone}
	switch keyer := &x.tenant.keyer; source {
	case KeyNone:
	case KeyOpening:
		x.ask.Key = keyer.KeyOfDigest(x.env.Model, x.env.CacheSalt, x.env.Opening)
	case KeyPromptCacheKey:
		x.ask.Key = keyer.Key(x.env.Model, x.env.CacheSalt, selector.DomainGroup, id)
	default:
		x.ask.Key = keyer.Key(x.env.Model, x.env.CacheSalt, selector.DomainID, id)
	}
	if unfit > 0 {
		x.h.metrics.unfitKeys.Add(float64(unfit))
	}
}

package hostile

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Options are the options of a campaign.
type Options struct {
	Seed uint64
	// Inputs is the number of inputs of each class.
	Inputs int
	// Deadline is the time after which the campaign starts no more inputs, if not zero.
	Deadline time.Time
	// Only selects classes; nil for all.
	Only *regexp.Regexp
	// Repeat is the only case to send, if set.
	Repeat *Case
	// Out receives the progress and the result.
	Out io.Writer
}

// cases returns the cases of a campaign. Each round contains one input of every class, and the
// first round contains the largest ones, so that a campaign that ends early covers every class.
func (o *Options) cases() []Case {
	if o.Repeat != nil {
		return []Case{*o.Repeat}
	}
	classes := slices.DeleteFunc(Classes(), func(c Class) bool { return o.Only != nil && !o.Only.MatchString(c.String()) })
	var out []Case
	random := rand.New(rand.NewPCG(o.Seed, 0))
	for round := range o.Inputs {
		for i := range classes {
			size := []int{100, 50, 75, 25}[round%4]
			if round >= 4 {
				size = 1 + random.IntN(100)
			}
			out = append(out, Case{Class: &classes[i], Size: size, Seed: random.Uint64()})
		}
	}
	return out
}

// tally is a row of the result.
type tally struct {
	language                          string
	inputs, refused, answered, failed int
	over                              int
	cpu                               time.Duration
	memory                            int64
}

// Campaign sends inputs and writes a table of their costs. It returns an error if an input
// exceeds the bound.
func Campaign(ctx context.Context, site *Site, o Options) error {
	if err := site.Calibrate(ctx); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "seed %d; idle: server %d MB, agent %d MB\n", o.Seed, site.server.memory>>20, site.agent.memory>>20)
	var rows []*tally
	var over []string
	for _, c := range o.cases() {
		if ctx.Err() != nil || !o.Deadline.IsZero() && time.Now().After(o.Deadline) {
			break
		}
		input := c.Input()
		started := time.Now()
		verdict, err := site.Run(ctx, input)
		if err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
		i := slices.IndexFunc(rows, func(r *tally) bool { return r.language == c.Class.Language })
		if i < 0 {
			i, rows = len(rows), append(rows, &tally{language: c.Class.Language})
		}
		rows[i].add(verdict)
		if len(verdict.Over) > 0 {
			text := fmt.Sprintf("%s\n\t%s\n\t%s\n\t%s", c, strings.Join(verdict.Over, "\n\t"), cut(excerpt(input), 400), cut(verdict.Message, 300))
			over = append(over, text)
			fmt.Fprintln(o.Out, "OVER", text)
		} else {
			fmt.Fprintf(o.Out, "ok   %s: %s, %d ms of CPU, %d MB, in %.1f s: %s\n", c, verdict.Outcome, verdict.CPU.Milliseconds(), verdict.Memory>>20, time.Since(started).Seconds(), cut(strings.ReplaceAll(verdict.Message, "\n", " "), 160))
		}
	}
	o.table(rows)
	if len(over) > 0 {
		fmt.Fprintf(o.Out, "\nover the bound, to be repeated one by one with HOSTILE_REPEAT:\n%s\n", strings.Join(over, "\n"))
		return fmt.Errorf("%d inputs are over the bound", len(over))
	}
	return context.Cause(ctx)
}

func (t *tally) add(verdict *Verdict) {
	t.inputs++
	switch verdict.Outcome {
	case Refused:
		t.refused++
	case Answered:
		t.answered++
	default:
		t.failed++
	}
	if len(verdict.Over) > 0 {
		t.over++
	}
	t.cpu, t.memory = max(t.cpu, verdict.CPU), max(t.memory, verdict.Memory)
}

func (o *Options) table(rows []*tally) {
	w := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(w, "\nlanguage\tinputs\trefused\tanswered\tfailed\tmax CPU\tmax memory\tover the bound\t\n")
	for _, r := range rows {
		_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%.2f s\t%d MB\t%d\t\n", r.language, r.inputs, r.refused, r.answered, r.failed, r.cpu.Seconds(), r.memory>>20, r.over)
	}
	_ = w.Flush()
}

// excerpt returns the beginning of the last request of an input.
func excerpt(input Input) string {
	request := input.Requests[len(input.Requests)-1]
	body := string(request.Body)
	if request.Gzip {
		body = fmt.Sprintf("%d bytes of gzip", len(request.Body))
	}
	for _, key := range []string{"celExpressions", "messageExpression", "jqPathExpressions", "jsonPaths", "jsonPointers"} {
		if i := strings.Index(body, `"`+key); i >= 0 {
			body = body[i:]
			break
		}
	}
	return fmt.Sprintf("%s %s as %s: %q", request.Method, cut(request.Path, 300), request.As, cut(body, 300))
}

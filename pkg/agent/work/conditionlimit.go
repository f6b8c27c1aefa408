package work

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

const (
	// celTextLimit bounds, in bytes, the texts that one call in an expression makes.
	celTextLimit = 4 << 20
	// celItemLimit bounds how many items such a call goes through.
	celItemLimit = 1_000_000
)

// limitTexts has calls that could make texts of any length fail instead. What such a
// call costs is known only when it is done, and then the memory is used already.
func limitTexts(env *cel.Env) (cel.ProgramOption, error) {
	limited := map[string]functions.FunctionOp{}
	for name, size := range map[string]func([]ref.Val) int{"replace": replacedSize, "join": joinedSize, "format": formattedSize} {
		call, err := bindingOf(env, name)
		if err != nil {
			return nil, err
		}
		limited[name] = func(args ...ref.Val) ref.Val {
			if size(args) > celTextLimit {
				return types.NewErr("%s: the result would be longer than %d bytes", name, celTextLimit)
			}
			return call(args...)
		}
	}
	return cel.CustomDecoratorV2(func(step interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		call, ok := step.(interpreter.InterpretableCall)
		if !ok || limited[call.Function()] == nil {
			return step, nil
		}
		return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), limited[call.Function()]), nil
	}), nil
}

// bindingOf returns what a function of an environment does, for all its overloads.
func bindingOf(env *cel.Env, name string) (functions.FunctionOp, error) {
	overloads, err := env.Functions()[name].Bindings()
	if err != nil {
		return nil, fmt.Errorf("function %s: %w", name, err)
	}
	for _, overload := range overloads {
		if overload.Operator != name {
			continue
		}
		return func(args ...ref.Val) ref.Val {
			switch {
			case len(args) == 1 && overload.Unary != nil:
				return overload.Unary(args[0])
			case len(args) == 2 && overload.Binary != nil:
				return overload.Binary(args[0], args[1])
			case overload.Function != nil:
				return overload.Function(args...)
			default:
				return types.NoSuchOverloadErr()
			}
		}, nil
	}
	return nil, fmt.Errorf("there is no function %s", name)
}

// replacedSize is that of text.replace(old, new[, times]).
func replacedSize(args []ref.Val) int {
	if len(args) < 3 {
		return 0
	}
	text, _ := args[0].Value().(string)
	old, _ := args[1].Value().(string)
	replacement, _ := args[2].Value().(string)
	times := utf8.RuneCountInString(text) + 1
	if old != "" {
		times = strings.Count(text, old)
	}
	if len(args) > 3 {
		if most, ok := args[3].(types.Int); ok && most >= 0 {
			times = int(min(int64(times), int64(most)))
		}
	}
	return len(text) + times*len(replacement)
}

// joinedSize is that of list.join([separator]).
func joinedSize(args []ref.Val) int {
	separator := 0
	if len(args) > 1 {
		text, _ := args[1].Value().(string)
		separator = len(text)
	}
	return newTextSize().add(args[0], separator)
}

// formattedSize is an upper bound of that of text.format(list).
func formattedSize(args []ref.Val) int {
	if len(args) < 2 {
		return 0
	}
	// As hexadecimal digits a text takes twice its size. No number takes more than
	// a few hundred digits, and each takes a clause.
	text, _ := args[0].Value().(string)
	return 512*strings.Count(text, "%") + len(text) + 2*newTextSize().add(args[1], 2)
}

// textSize adds up the texts in values, until they are too long anyway.
type textSize struct{ size, items int }

func newTextSize() *textSize { return &textSize{} }

// add adds the size of a value, with that of a separator for each of its items, and
// returns the sum.
func (s *textSize) add(value ref.Val, separator int) int {
	s.items++
	if s.items > celItemLimit {
		s.size = 2 * celTextLimit
	}
	if s.size > celTextLimit {
		return s.size
	}
	s.size += separator
	switch value := value.(type) {
	case types.String:
		s.size += len(value)
	case types.Bytes:
		s.size += len(value)
	case traits.Mapper:
		for keys := value.Iterator(); keys.HasNext() == types.True && s.size <= celTextLimit; {
			key := keys.Next()
			s.add(key, separator)
			s.add(value.Get(key), separator)
		}
	case traits.Lister:
		for items := value.Iterator(); items.HasNext() == types.True && s.size <= celTextLimit; {
			s.add(items.Next(), separator)
		}
	}
	return s.size
}

// Reads recorded operations on lists and registers, a line of JSON for each, and lets porcupine judge whether
// they are linearizable, key by key. Exits with 0 if they are, 1 if they are not, and 3 if it cannot tell.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// An operation. Those that were refused are left out, and so are unknown ones that no reading shows, which
// need not have happened.
type operation struct {
	Client int     `json:"client"`
	Key    string  `json:"key"`
	Kind   string  `json:"kind"` // append, list, set, get
	Value  int64   `json:"value"`
	List   []int64 `json:"list"`
	Call   int64   `json:"call"`
	Return *int64  `json:"return"` // none: unknown
}

// The elements of a list, or the one value of a register, or nothing.
type state []int64

func step(before, input, _ interface{}) (bool, interface{}) {
	now, op := before.(state), input.(operation)
	switch op.Kind {
	case "append":
		return true, append(slices.Clip(now), op.Value)
	case "set":
		return true, state{op.Value}
	default:
		return slices.Equal(now, op.List), now
	}
}

func byKey(history []porcupine.Operation) [][]porcupine.Operation {
	keys := map[string][]porcupine.Operation{}
	for _, op := range history {
		key := op.Input.(operation).Key
		keys[key] = append(keys[key], op)
	}
	var all [][]porcupine.Operation
	for _, ops := range keys {
		all = append(all, ops)
	}
	return all
}

func main() {
	var history []porcupine.Operation
	lines := bufio.NewReader(os.Stdin)
	decoder := json.NewDecoder(lines)
	for decoder.More() {
		var op operation
		if err := decoder.Decode(&op); err != nil {
			fmt.Println(err)
			os.Exit(2)
		}
		end := int64(math.MaxInt64)
		if op.Return != nil {
			end = *op.Return
		}
		history = append(history, porcupine.Operation{ClientId: op.Client, Input: op, Call: op.Call, Return: end})
	}
	model := porcupine.Model{
		Partition: byKey,
		Init:      func() interface{} { return state{} },
		Step:      step,
		Equal:     func(one, other interface{}) bool { return slices.Equal(one.(state), other.(state)) },
	}
	result := porcupine.CheckOperationsTimeout(model, history, 2*time.Minute)
	fmt.Println(len(history), "operations:", result)
	switch result {
	case porcupine.Ok:
	case porcupine.Illegal:
		os.Exit(1)
	default:
		os.Exit(3)
	}
}

package protocol

import (
	"fmt"
	"math/rand/v2"
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A filler gives a message's fields random values, nothing null.
type filler struct {
	rng *rand.Rand
	max int // elements of an array, at least one
}

func newFiller(seed uint64, max int) *filler {
	return &filler{rand.New(rand.NewPCG(seed, seed)), max}
}

// fill fills what m points to and keeps its Version.
func (f *filler) fill(m any) {
	v := reflect.ValueOf(m).Elem()
	version := v.FieldByName("Version").Int()
	f.value(v)
	v.FieldByName("Version").SetInt(version)
}

func (f *filler) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(f.rng.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.rng.Uint64())) // SetInt keeps the low bits
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(f.rng.Uint64())
	case reflect.Float64:
		v.SetFloat(f.rng.NormFloat64())
	case reflect.String:
		v.SetString(fmt.Sprintf("s%d", f.rng.IntN(1000)))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.value(v.Elem())
	case reflect.Array:
		for i := range v.Len() {
			f.value(v.Index(i))
		}
	case reflect.Slice:
		n := 1 + f.rng.IntN(f.max)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			f.value(v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[kmsg.Tags]() {
			return
		}
		for i := range v.NumField() {
			f.value(v.Field(i))
		}
	}
}

// eachVersion calls do with an empty request for every API of the table at every
// version of it.
func eachVersion(do func(a *API, req kmsg.Request)) {
	for i := range apis {
		for v := apis[i].Min; v <= apis[i].Max; v++ {
			req := newRequest(apis[i].Key)
			req.SetVersion(v)
			do(&apis[i], req)
		}
	}
}

// deref returns the value an interface or pointer holds.
func deref(m any) reflect.Value { return reflect.ValueOf(m).Elem() }

package controller

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/config"
	"ottla/internal/metadata"
	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// An answer makes the response to a request once its records are committed; offset is that of the first of
// them, or of nothing if there are none.
type answer func(offset int64) kmsg.Response

// reply is the answer that does not depend on offsets.
func reply(resp kmsg.Response) answer { return func(int64) kmsg.Response { return resp } }

// A world is what decisions depend on beside the metadata. A turn only reads it, sessions excepted, and those
// hold nothing that must survive the loss of the leadership.
type world struct {
	nodeID    int32
	clusterID string
	config    *config.Config
	sessions  *sessions
	newID     func() uuid.UUID // a random id
	// spread says at which broker the placement of the next topic begins; each placement moves it on.
	spread int
}

// A turn evaluates one request, or one timer, against the speculative image. Everything it decides is emitted as
// records, and what it emitted it sees.
type turn struct {
	*world
	now time.Time

	version protocol.MetadataVersion // of the cluster, this turn's changes included
	img     *metadata.Image          // with the records of this turn up to those in delta
	delta   *metadata.Delta          // what was emitted since; nil if nothing
	emitted []records.Message
	values  [][]byte // the same, framed
}

func newTurn(w *world, img *metadata.Image, now time.Time) *turn {
	return &turn{world: w, version: img.MetadataVersion(), img: img, now: now}
}

// image returns the metadata with everything that this turn emitted.
func (t *turn) image() *metadata.Image {
	if t.delta != nil {
		t.img, t.delta = t.delta.Apply(t.img.Offset, t.img.Epoch), nil
	}
	return t.img
}

// emit adds a record to what this turn decides. The record must be one that the cluster's metadata.version has.
func (t *turn) emit(m records.Message) {
	version, ok := records.MetadataRecordVersion(m, int16(t.version))
	if !ok {
		panic(fmt.Sprintf("controller: %T cannot be written at metadata.version %s", m, t.version))
	}
	t.add(m, version)
}

// add is emit for a record of the given version.
func (t *turn) add(m records.Message, version int16) {
	t.emitted = append(t.emitted, m)
	t.values = append(t.values, records.AppendMetadata(nil, m, version))
	if f, ok := m.(*records.FeatureLevelRecord); ok && f.Name == protocol.FeatureMetadataVersion {
		t.version = protocol.MetadataVersion(f.FeatureLevel)
	}
	t.replay(m)
}

// replay shows a record to what follows in the turn. The records around a transaction change nothing by themselves.
func (t *turn) replay(m records.Message) {
	if bracket(m) {
		return
	}
	if t.delta == nil {
		t.delta = metadata.NewDelta(t.img)
	}
	if err := t.delta.Replay(m); err != nil {
		panic(fmt.Sprintf("controller: wrote a record that does not fit the metadata: %+v: %v", m, err))
	}
}

// bracket reports whether a record begins or ends a transaction.
func bracket(m records.Message) bool {
	switch m.(type) {
	case *records.BeginTransactionRecord, *records.EndTransactionRecord, *records.AbortTransactionRecord:
		return true
	}
	return false
}

// elr reports whether eligible leader replicas are kept (KIP-966).
func (t *turn) elr() bool {
	return t.version >= protocol.ELRSince && t.image().FeatureLevel(protocol.FeatureELR) > 0
}

// active reports whether a broker may lead and be put into an ISR.
func (t *turn) active(id int32) bool {
	b := t.image().Broker(id)
	return b != nil && !b.Fenced && !b.InControlledShutdown
}

// topicSetting returns the value in force of a key that topics, the cluster and this node's file may set.
func (t *turn) topicSetting(topic, key string) string {
	if v, ok := t.image().ConfigValue(key, metadata.TopicResource(topic), metadata.ClusterDefaults); ok {
		return v
	}
	return t.config.String(key)
}

// minISR returns a topic's min.insync.replicas.
func (t *turn) minISR(topic string) int {
	n, err := strconv.Atoi(t.topicSetting(topic, "min.insync.replicas"))
	if err != nil || n < 1 { // validation keeps both out
		return 1
	}
	return n
}

// unclean reports whether a topic's partitions may be led by a replica that lacks acknowledged records.
func (t *turn) unclean(topic string) bool {
	return t.topicSetting(topic, "unclean.leader.election.enable") == "true"
}

// checkBroker makes sure that a request comes from the registered incarnation of a broker.
func (t *turn) checkBroker(id int32, epoch int64) error {
	b := t.image().Broker(id)
	if b == nil || epoch < 0 { // nobody knows an epoch that is yet to be stamped
		return refuse(kerr.StaleBrokerEpoch, "no broker %d is registered with epoch %d", id, epoch)
	}
	if b.Epoch != epoch {
		return refuse(kerr.StaleBrokerEpoch, "broker %d sent epoch %d, but its registration has epoch %d", id, epoch, b.Epoch)
	}
	return nil
}

// A refusal is the answer to a request, or to a part of it, that changes nothing.
type refusal struct {
	code    int16
	message string
}

func (r *refusal) Error() string { return fmt.Sprintf("%v: %s", kerr.ErrorForCode(r.code), r.message) }

func refuse(e *kerr.Error, format string, args ...any) error {
	return &refusal{code: e.Code, message: fmt.Sprintf(format, args...)}
}

// codeOf returns what a client is told of an error: 0 and nil if there is none.
func codeOf(err error) (code int16, message *string) {
	if err == nil {
		return 0, nil
	}
	var own *refusal
	if errors.As(err, &own) {
		return own.code, &own.message
	}
	var alter *config.AlterError
	if errors.As(err, &alter) {
		return alter.Code, &alter.Message
	}
	text := err.Error()
	return kerr.UnknownServerError.Code, &text
}

// without returns the elements of all that are not in gone, in a slice of their own.
func without(all []int32, gone ...int32) []int32 {
	out := make([]int32, 0, len(all))
	for _, id := range all {
		if !slices.Contains(gone, id) {
			out = append(out, id)
		}
	}
	return out
}

// within returns the elements of all that are in some, in a slice of their own.
func within(all, some []int32) []int32 {
	out := make([]int32, 0, len(all))
	for _, id := range all {
		if slices.Contains(some, id) {
			out = append(out, id)
		}
	}
	return out
}

func containsAll(all, some []int32) bool {
	return !slices.ContainsFunc(some, func(id int32) bool { return !slices.Contains(all, id) })
}

func hasDuplicates(ids []int32) bool {
	for i, id := range ids {
		if slices.Contains(ids[:i], id) {
			return true
		}
	}
	return false
}

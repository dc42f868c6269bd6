package replica

import (
	"errors"
	"time"

	"ottla/internal/storage"
)

// An Age says how long ago a record was appended, by this broker's clock.
type Age struct {
	Duration time.Duration
	// Known: there is such a record, or nothing is unread, which has age 0. A record without a timestamp that came before this
	// broker can remember has no age.
	Known bool
	// Estimated: the broker did not see the append, or has forgotten it, and goes by the records' timestamps, which are
	// the producers' own unless message.timestamp.type says otherwise.
	Estimated bool
}

// Age returns the age of the oldest record that a consumer which committed offset has yet to read: the first one from there
// on, or at the log start if that is further, and below the high watermark. Errors are those of Read but for
// *storage.OffsetOutOfRangeError. A follower answers only for anyReplica.
func (p *Partition) Age(offset int64, anyReplica bool) (Age, error) {
	v, err := p.serve(-1, !anyReplica)
	if err != nil {
		return Age{}, err
	}
	offset = max(offset, v.log.StartOffset())
	if offset >= p.HighWatermark() {
		return Age{Known: true}, nil
	}
	p.mu.Lock()
	age, known := p.mu.ages.Age(offset, time.Since(p.set.started))
	p.mu.Unlock()
	if known {
		return Age{Duration: age, Known: true}, nil
	}
	ts, found, err := v.log.TimestampAt(offset)
	if errors.As(err, new(*storage.OffsetOutOfRangeError)) { // deleted or cut meanwhile
		return Age{}, nil
	}
	if err != nil || !found {
		return Age{}, err
	}
	return Age{Duration: max(time.Since(time.UnixMilli(ts)), age), Known: true, Estimated: true}, nil
}

package hostile

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

const (
	// unreadPath is the path of a watch of the large resources.
	unreadPath = searchPath + "/namespaces/" + BareCluster + "/fleetresources?watch=true&fieldSelector=kind%3DLarge"
	// watchedBytes is the size of all resources of a watch that is not read. It exceeds what the kernel keeps for a
	// connection.
	watchedBytes = 6_000_000
	// noise is the memory by which the server changes meanwhile.
	noise = 2 << 20
)

func watchClasses() []Class {
	return []Class{{"watch", "unread", func(g *Gen) Input {
		// A watch holds a few large events, or many small ones.
		size := pick(g, 60_000, 20_000, 2_000)
		n, watches := watchedBytes/size, g.upTo(20, 300)
		report := reporting(added(n, func(i int) string {
			return fmt.Sprintf(`{"uid":"%s/large%d","kind":"Large","resourceString":"larges","properties":{"name":"%d","text":"%s"}}`, BareCluster, i, i, strings.Repeat(string(rune('a'+i%26)), size))
		}))
		initial := g.IntN(2) == 0
		return Input{Requests: []Request{report}, Check: func(ctx context.Context, s *Site) (string, error) {
			over, err := s.unread(ctx, watches, initial, report)
			_, _, removed := s.send(ctx, removing(n, "large%"))
			return over, cmp.Or(err, removed)
		}}
	}}}
}

// unread opens watches directly on the server and does not read them. It reports whether the server counts the memory that
// they hold. The watches begin with the initial events, or with the changes of a report.
func (s *Site) unread(ctx context.Context, watches int, initial bool, report Request) (string, error) {
	config, err := s.Fleet.Server.UserConfig("hostile-tenant")
	if err != nil {
		return "", err
	}
	path := fmt.Sprintf("%s&resourceVersionMatch=NotOlderThan&sendInitialEvents=%t&allowWatchBookmarks=%t", unreadPath, initial, initial)
	heap, counted, err := s.watchMemory(ctx, config)
	if err != nil {
		return "", err
	}
	var opened atomic.Int32
	closing, end := context.WithCancel(ctx)
	defer end()
	var opening errgroup.Group
	opening.SetLimit(32)
	for range watches {
		opening.Go(func() error {
			conn, err := openUnread(ctx, config, path)
			if err == nil && conn != nil {
				context.AfterFunc(closing, func() { _ = conn.Close() })
				opened.Add(1)
			}
			return err
		})
	}
	if err := opening.Wait(); err != nil {
		return "", err
	}
	if !initial {
		changed := report
		changed.Body = []byte(strings.ReplaceAll(string(report.Body), `"properties":{`, `"properties":{"changed":"true",`))
		if code, answer, err := s.send(ctx, changed); err != nil || code != http.StatusOK {
			return "", fmt.Errorf("changing the watched resources: %d %s %w", code, cut(string(answer), 200), err)
		}
	}
	nowHeap, nowCounted, err := s.watchMemory(ctx, config)
	if err != nil {
		return "", err
	}
	held, more := nowHeap-heap, nowCounted-counted
	what := fmt.Sprintf("%d unread watches hold %.1f MB, and the server counts %.1f MB", opened.Load(), float64(held)/(1<<20), float64(more)/(1<<20))
	s.measured(what)
	if more == 0 {
		return what + ", want more than 0", nil
	}
	if difference := max(held-more, more-held); difference > held/5+noise {
		return what + ", want the same within 20 %", nil
	}
	return "", nil
}

// openUnread opens a watch and reads only the header of the response. It returns nil if the server refuses the watch.
func openUnread(ctx context.Context, config *rest.Config, path string) (net.Conn, error) {
	secure, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: answerTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(config.Host, "https://"))
	if err != nil {
		return nil, err
	}
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return nil, err
	}
	secure.ServerName, _, _ = net.SplitHostPort(strings.TrimPrefix(config.Host, "https://"))
	stream := tls.Client(conn, secure)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, nil)
	if err != nil {
		return nil, err
	}
	if err := request.Write(stream); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(bufio.NewReaderSize(stream, 16), request)
	if err != nil {
		return nil, err
	}
	switch response.StatusCode {
	case http.StatusOK:
		return conn, conn.SetDeadline(time.Time{})
	case http.StatusTooManyRequests:
		return nil, conn.Close()
	}
	return nil, fmt.Errorf("a watch was answered with %s", response.Status)
}

// watchMemory returns the memory of the server that is in use, and the memory of watches that it counts, as soon as both
// have changed little twice. The server ends a watch that is not read after ten seconds, so it does not wait for long.
func (s *Site) watchMemory(ctx context.Context, config *rest.Config) (used, counted int64, err error) {
	read := func(path string) (string, error) {
		code, answer, err := send(ctx, s.direct, config.Host, Request{Method: http.MethodGet, Path: path})
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("GET %s = %d %s", path, code, cut(string(answer), 200))
		}
		return string(answer), err
	}
	settled := 0
	little := func(before, after int64) bool { return max(before-after, after-before) <= max(before/100, noise/4) }
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, answerTimeout, true, func(context.Context) (bool, error) {
		// Two collections also free what pools keep.
		for range 2 {
			if _, err := read("/debug/pprof/heap?gc=1"); err != nil {
				return false, err
			}
		}
		metrics, err := read("/metrics")
		if err != nil {
			return false, err
		}
		usedBefore, countedBefore := used, counted
		used, counted = 0, 0
		for line := range strings.Lines(metrics) {
			name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
			into := &used
			switch name {
			case "hub_apiserver_search_watch_memory_bytes":
				into = &counted
			case "go_gc_heap_live_bytes", "go_memstats_stack_inuse_bytes":
			default:
				continue
			}
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return false, err
			}
			*into += int64(value)
		}
		settled++
		if !little(usedBefore, used) || !little(countedBefore, counted) {
			settled = 0
		}
		return settled == 2, nil
	})
	return used, counted, err
}

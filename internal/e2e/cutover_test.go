package e2e_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheCutoverInTheDocumentsRepeatsNothingAndForgetsNothing goes from an own worker to pgrelay and back with the SQL and the
// configuration of docs/cutover.md.
func TestTheCutoverInTheDocumentsRepeatsNothingAndForgetsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	text, err := os.ReadFile("../../docs/cutover.md")
	require.NoError(t, err)
	block := func(language string) (all []string) {
		for _, m := range regexp.MustCompile("(?ms)^   ```"+language+"\n(.*?)^   ```$").FindAllSubmatch(text, -1) {
			all = append(all, regexp.MustCompile(`(?m)^   `).ReplaceAllString(string(m[1]), ""))
		}
		return all
	}
	sql, yaml := block("sql"), block("yaml")
	require.Len(t, sql, 7)
	require.Len(t, yaml, 1)
	addMark, markBefore, sessions, markAfter, leftovers, claims, back := sql[0], sql[1], sql[2], sql[3], sql[4], sql[5], sql[6]
	require.NoError(t, os.WriteFile(w.file, []byte(yaml[0]+"http: {addr: '127.0.0.1:0'}\n"), 0o600))
	w.sqs.CreateQueue("emails", nil)
	w.exec(`CREATE TABLE email_outbox (id bigint PRIMARY KEY, status text NOT NULL, topic text, document jsonb)`)
	insert := func(id, status, document string) {
		w.exec(`INSERT INTO email_outbox VALUES ($1::text::bigint, $2, 'welcome', nullif($3, '')::jsonb)`, id, status, document)
	}

	insert("1", "SENT", "1")
	insert("2", "FAILED", "2")
	insert("3", "PENDING", "3")
	w.exec(addMark)
	w.exec(markBefore)
	w.exec(`UPDATE email_outbox SET status = 'SENT' WHERE id = 3`) // the old worker goes on until it is stopped
	w.exec(sessions)
	w.exec(markAfter)
	insert("4", "PROCESSING", "4")
	insert("5", "PENDING", "5")
	insert("6", "PENDING", "")
	require.Equal(t, "1", w.string(`SELECT count(*)::text FROM (`+strings.TrimSuffix(strings.TrimSpace(leftovers), ";")+`) l`))

	p := w.launch([]string{"AWS_ENDPOINT_URL_SQS=" + w.sqs.URL}, "run")
	w.eventually("0", `SELECT count(*)::text FROM email_outbox WHERE published_at IS NULL`)
	p.stop()
	require.ElementsMatch(t, []string{"4", "5"}, bodies(w.sqs.Messages("emails")))

	w.exec(claims)
	w.exec(back)
	require.Equal(t, []string{"1 SENT", "2 FAILED", "3 SENT", "4 SENT", "5 SENT", "6 FAILED"},
		w.strings(`SELECT id || ' ' || status FROM email_outbox ORDER BY id`))
}

package config

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// A job's name is part of its session's application_name, which has 63 bytes.
var jobName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,49}$`)

func (v *validator) scheduler() {
	names := map[string]bool{}
	for i, j := range v.c.Scheduler.Jobs {
		key := fmt.Sprintf("scheduler.jobs[%d]", i)
		switch {
		case j.Name == "":
			v.report(key+".name", "is required: logs and metrics call the job by it")
		case !jobName.MatchString(j.Name):
			v.report(key+".name", "must be 1 to 50 letters, digits, dots, - and _, with a letter or digit first")
		case names[j.Name]:
			v.report(key+".name", "is another job's name already")
		}
		names[j.Name] = true
		if v.given(key + ".every") {
			between(v, key+".every", j.Every, Duration(100*time.Millisecond), hours(30*24))
		} else {
			v.report(key+".every", "is required: how often the job runs, such as 5s")
		}
		if strings.TrimSpace(j.SQL) == "" {
			v.report(key+".sql", "is required: the statements that put due work into an outbox")
		}
	}
}
